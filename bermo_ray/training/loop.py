"""The training loop that every worker runs; where it runs is the Reporter's matter."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from bermo_ray.record import Report
from bermo_ray.training.batches import epoch_batches, evaluation_steps, to_device
from bermo_ray.training.best_model import keep_if_best, restore_best
from bermo_ray.training.checkpoint import Progress, read_progress
from bermo_ray.training.judge import judge
from bermo_ray.training.malloc import keep_freed_memory
from bermo_ray.training.measure import TrainingMeter, measure
from bermo_ray.training.reporter import Reporter
from bermo_ray.training.setup import TrainingRun, set_up
from bermo_ray.trial import Trial

_NORM_CHECK_STEPS = 25  # between looks at the gradient norm, each of which waits for a GPU


def train(trial: Trial, reporter: Reporter) -> Report:
    """Trains one trial, reports at every evaluation, and returns the last report.

    That one's status is ``completed``, or ``diverged`` with a reason when the loss became
    non-finite or the metric ended no better than a constant answer.
    """
    keep_freed_memory()
    rank, world_size = reporter.rank, reporter.world_size

    # Take up what an earlier process left, if there was one.
    folder = reporter.resume_from()
    progress = read_progress(folder) if folder else Progress()
    if progress.ended:  # but the driver did not hear of it
        reporter.report(progress.history[-1], None, history=progress.history)
        return progress.history[-1]
    run = set_up(trial, world_size, reporter.device, progress.dropping_order)
    if folder:
        run.resume(folder, progress)
        resumed = replace(progress.history[-1], resumed_at=progress.step)
        reporter.report(resumed, None, history=progress.history)
    run.wrap_network()
    batches: list[np.ndarray] = []
    evaluated, meter = evaluation_steps(trial, run.steps_per_epoch), TrainingMeter(run.device)

    for step in range(progress.step + 1, run.total_steps + 1):  # t of docs/methods.md §2
        # At the start of an epoch: draw its batches, and drop the layers that are due.
        epoch, index = divmod(step - 1, run.steps_per_epoch)
        if index == 0 or not batches:
            run.epoch = epoch
            batches = epoch_batches(run.data["train"], trial, epoch, world_size)
            if run.remove_layers(run.layers_due(epoch)):
                run.wrap_network()
        # At the start of a stretch between evaluations, which is where runs are resumed.
        if step == progress.step + 1:
            _seed(trial.seed, step, rank)
            run.start_training()

        loss, norm = take_step(run, step, batches[index], rank)
        meter.add(loss, len(batches[index]))
        reporter.progress(step / run.total_steps)

        # Gradients are the same on all workers after DDP, so all of them break off together.
        checked = step % _NORM_CHECK_STEPS == 0 or step in evaluated
        exploded = checked and run.precision.has_exploded(norm)
        if exploded or step in evaluated:
            final = exploded or step == run.total_steps
            best_step = restore_best(run, step) if final and not exploded else None
            evaluation, report = measure(run, step, meter, final)
            if final:
                status, reason = judge(report, exploded, trial.pruning)
                report = replace(report, status=status, reason=reason, best_step=best_step)
            else:
                keep_if_best(run, step, evaluation)
            history = [*progress.history, report]
            progress = Progress(step, run.total_steps, history, run.model.dropping_order)
            predictions = evaluation.table() if final else None
            reporter.report(report, partial(run.save, progress=progress, predictions=predictions))
            meter = TrainingMeter(run.device)
        if exploded:
            break
    return progress.history[-1]


def take_step(
    run: TrainingRun, step: int, rows: np.ndarray, rank: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """One optimiser step on these rows, of which each worker takes its share.

    Returns:
        The mean loss of this worker's rows, and the norm of the gradients of all workers; scalars.
    """
    # Gradients of L = CE + λ(t)·R (see objective). The pruner adds λ·∂R/∂S as it is left.
    settings, scaler = run.trial.optimizer, run.precision.scaler
    run.model.fusion.share_trained = step / run.total_steps
    with run.pruner.step(step) if run.pruner else nullcontext():
        loss = _backward(run, rows[rank :: run.world_size], rows)
        scaler.unscale_(run.optimizer)  # before the chain rule through the masks
    norm = nn.utils.clip_grad_norm_(run.trained_parameters(), settings.max_gradient_norm)
    scaler.step(run.optimizer)
    scaler.update()
    if run.pruner:
        run.pruner.shift_scores_to_density(settings.score_learning_rate)
    run.rates.step()
    run.optimizer.zero_grad(set_to_none=True)
    return loss, norm


def objective(run: TrainingRun, rows: np.ndarray) -> torch.Tensor:
    """What is minimised on these rows, but for the penalty (docs/methods.md §2):

        L = CE + λ(t)·R,  with a teacher  L = α_ce·CE + α_kd·T²·KL + λ(t)·R

    where CE is the loss of the task's head. Autograd differentiates what is returned here. R, the
    mean of σ(S + shift) over the mask scores S, needs no graph: as ``Pruner.step`` is left it adds
    the closed form λ·σ'(S + shift)·weight/n to the gradient of the scores of each matrix, with n
    scores and that weight in R.

    Returns:
        A scalar.
    """
    data = run.data["train"]
    batch = to_device(data.batch(rows, draw=(run.trial.seed, run.epoch)), run.device)
    gold = {name: batch.pop(name) for name in data.gold}
    with run.precision.forward():
        output = run.parallel(**batch)
    logits = run.task.head.logits(output, batch["attention_mask"])
    loss = run.task.head.loss(logits, gold)
    if run.teacher is None:
        return loss
    weights = run.teacher.settings
    taught = run.teacher.loss(rows, logits, gold)
    return weights.alpha_ce * loss + weights.alpha_kd * taught


def _backward(run: TrainingRun, rows: np.ndarray, all_rows: np.ndarray) -> torch.Tensor:
    """Gradients of this worker's rows, in as many parts as asked for; returns their mean loss.

    A part counts by what its loss averages (rows, or labelled pieces), so that parts and workers,
    whose gradients are averaged, add up to the loss of all workers' rows as one batch.
    """
    counts = run.data["train"].loss_counts
    share = run.world_size / max(1, counts[all_rows].sum())
    total = torch.zeros((), device=run.device)
    parts = np.array_split(rows, min(run.trial.micro_batches, len(rows)))
    for index, part in enumerate(parts):
        # Workers exchange gradients once per step, with its last part.
        with run.no_exchange() if index < len(parts) - 1 else nullcontext():
            loss = objective(run, part)
            loss_of_part = loss * float(counts[part].sum() * share)
            run.precision.scaler.scale(loss_of_part).backward()
        total += loss.detach() * float(counts[part].sum() / max(1, counts[rows].sum()))
    return total


def _seed(seed: int, step: int, rank: int) -> None:
    """Dropout and L0 noise: the same when resumed here, different on every worker."""
    words = np.random.SeedSequence([seed, step, rank]).generate_state(2)
    torch.manual_seed((int(words[0]) << 32 | int(words[1])) & (2**63 - 1))
