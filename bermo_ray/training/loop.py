"""The loop that every worker runs, whatever started it. Where it runs is the Reporter's matter."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from bermo_ray.models import assembly, backbone, heads
from bermo_ray.models.layer_drop import due
from bermo_ray.pruning.pruner import Count, Pruner, count
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.tasks import encoding, registry
from bermo_ray.tasks.encoded import Encoded
from bermo_ray.tasks.task import Split, Task
from bermo_ray.training import checkpoint, features, optimizer, trained
from bermo_ray.training.checkpoint import Progress
from bermo_ray.training.contribution import contribution
from bermo_ray.training.distillation import Teacher
from bermo_ray.training.evaluate import Evaluation, evaluate
from bermo_ray.training.memory import keep_freed_memory
from bermo_ray.training.speed import SHAPE, latencies, weight_bytes
from bermo_ray.trial import Pruning, Trial

Report = dict[str, Any]
TOLERANCE = 0.005  # a learned multiplier that lands nearer than this has met its target
CHECK_EVERY = 25  # steps between looks at the gradient norm, which costs a wait on a GPU


class Reporter(Protocol):
    """What a backend gives the loop: its place among the workers, and a way to report."""

    rank: int
    world_size: int
    device: torch.device

    def resume_from(self) -> Path | None:
        """The folder of the checkpoint to go on from, if any."""

    def report(self, metrics: Report, save: Callable[[Path], None] | None) -> None:
        """Called by every worker; ``save`` writes a checkpoint into the folder it is given."""


def steps_per_epoch(rows: int, batch_size: int, world_size: int = 1) -> int:
    """A last batch that can't give every worker a row is left out."""
    rest = rows % batch_size
    return rows // batch_size + (1 if rest >= world_size else 0)


def batches(data: Encoded, trial: Trial, epoch: int, world_size: int = 1) -> list[np.ndarray]:
    """The epoch's batches, fixed by (seed, epoch): rows of like length together, in random order.

    Sorting within windows of 32 batches spares most padding and keeps batches random.
    """
    random = np.random.default_rng([trial.seed, epoch])
    order = random.permutation(len(data))
    lengths = data.lengths
    window = 32 * trial.batch_size
    order = np.concatenate([
        part[np.argsort(lengths[part], kind="stable")]
        for part in np.split(order, range(window, len(order), window))
    ])  # fmt: skip
    parts = np.split(order, range(trial.batch_size, len(order), trial.batch_size))
    parts = [part for part in parts if len(part) >= world_size]
    return [parts[i] for i in random.permutation(len(parts))]


@dataclass
class Run:
    """All that one worker holds while it trains a trial."""

    trial: Trial
    task: Task
    data: dict[Split, Encoded]
    built: assembly.Assembled
    forward: nn.Module  # the model, or its replay from cached features
    pruner: Pruner | None
    teacher: Teacher | None
    adam: torch.optim.AdamW
    rates: LambdaLR
    per_epoch: int
    total: int
    device: torch.device
    left: Count | None = None  # parameters that remain, when last counted

    @property
    def borders(self) -> set[int]:
        """Steps after which is evaluated: evenly spread over each epoch, its end among them."""
        parts = self.trial.evaluations
        return {
            epoch * self.per_epoch + math.ceil(self.per_epoch * i / parts)
            for epoch in range(self.trial.epochs)
            for i in range(1, parts + 1)
        }


def prepare(
    trial: Trial, world_size: int, device: torch.device, going: list[int] | None = None
) -> Run:
    """Data, model, masks and optimiser of a trial, as they are before the first step; ``going``,
    of a checkpoint, says which layers the run drops."""
    task = registry.resolve(trial.data)
    tokenizer = backbone.tokenizer(trial.backbone)
    splits: tuple[Split, Split] = ("train", "dev")
    data = {s: encoding.load(task, trial.data, s, trial.seed, tokenizer) for s in splits}
    teacher = None
    if trial.distillation:
        teacher = Teacher(trial.distillation, data["train"], trial.batch_size, device)
    similarity = partial(
        contribution, data=data["dev"], batch_size=4 * trial.batch_size, device=device
    )
    built = trained.start(trial, task, similarity, going)
    built.model.to(device)
    per_epoch = steps_per_epoch(len(data["train"]), trial.batch_size, world_size)
    total = trial.epochs * per_epoch
    warmup = trial.warmup_steps(total)
    pruner = None
    if trial.pruning:
        pruner = Pruner(trial.pruning, Schedule.of(trial.pruning, total, warmup))
        pruner.attach(built.stack.modules)
        if trial.pruning.freeze_embeddings:
            backbone.embeddings(built.model).requires_grad_(False)
    adam, rates = optimizer.build(trial.optimizer, built, pruner, total, warmup)
    forward = built.model
    if trial.mode == "features":
        size = 4 * trial.batch_size
        data = {s: features.prepare(built, d, size, device) for s, d in data.items()}
        if (layers := built.fusion.needs()) is not None:
            forward = features.Replay(built, layers)
    return Run(
        trial, task, data, built, forward, pruner, teacher, adam, rates,
        per_epoch, total, device,
    )  # fmt: skip


def train(trial: Trial, reporter: Reporter) -> Report:
    """Trains one trial and reports at every evaluation; gives the last report.

    The last report has ``final=True`` and a ``status``: ``completed``, or ``diverged`` with a
    ``reason`` when the loss became non-finite or the metric ended no better than a constant answer.
    """
    keep_freed_memory()
    folder = reporter.resume_from()
    done = checkpoint.progress(folder) if folder else Progress(0, 0, [])
    if done.history and done.history[-1]["final"]:  # it ended, but the driver did not hear of it
        reporter.report(done.history[-1] | {"history": done.history}, None)
        return done.history[-1]
    rank, world = reporter.rank, reporter.world_size
    run = prepare(trial, world, reporter.device, done.going)
    model = run.built.model
    if folder:
        _shrink(run, done.history[-1].get("dropped", []))
        checkpoint.load(folder, model, run.pruner, run.adam, run.rates)
        resumed = {"history": done.history, "resumed_at": done.step}
        reporter.report(done.history[-1] | resumed, None)
    parallel = _parallel(run) if world > 1 else run.forward
    order: list[np.ndarray] = []
    borders, losses = run.borders, Mean(run.device)
    for step in range(done.step + 1, run.total + 1):  # t of methods §2 counts from 1
        epoch, place = divmod(step - 1, run.per_epoch)
        if place == 0 or not order:
            order = batches(run.data["train"], trial, epoch, world)
            if trial.layer_drop and _shrink(run, due(trial.layer_drop, run.built.going, epoch)):
                parallel = run.forward
                if world > 1:
                    gc.collect()  # DDP's own references would keep gradients of the old shapes
                    parallel = _parallel(run)
        if step == done.step + 1:  # the first step after an evaluation, or of a resumed run
            _seed(trial.seed, step, rank)
            run.forward.train()
            if trial.mode == "features":  # frozen means without dropout too
                run.built.stack.base.eval()
        run.built.fusion.progress = step / run.total
        everyone = order[place]
        with run.pruner.step(step) if run.pruner else nullcontext():
            loss = _backward(run, parallel, everyone[rank::world], everyone)
        trainable = [p for group in run.adam.param_groups for p in group["params"]]
        norm = nn.utils.clip_grad_norm_(trainable, trial.optimizer.clip)
        run.adam.step()
        if run.pruner:
            run.pruner.settle(trial.optimizer.mask_rate)
        run.rates.step()
        run.adam.zero_grad(set_to_none=True)
        losses.add(loss, len(everyone))

        # Gradients are the same on all workers after DDP, so all of them break off together.
        broken = (step % CHECK_EVERY == 0 or step in borders) and not bool(torch.isfinite(norm))
        if broken or step in borders:
            found, measured = _measure(run, step, broken or step == run.total)
            now = losses.report() | measured
            now |= _verdict(now, broken, trial.pruning) if now["final"] else {}
            history = [*done.history, _finite(now)]
            done = Progress(step, run.total, history, run.built.going)
            save = partial(
                checkpoint.save,
                trial_json=trial.to_json(),
                model=model,
                pruner=run.pruner,
                optimizer=run.adam,
                rates=run.rates,
                progress=done,
                labels=run.task.labels,
                predictions=found.table() if now["final"] else None,
            )
            reporter.report(done.history[-1], save)
            losses = Mean(run.device)
        if broken:
            break
    return done.history[-1]


def _shrink(run: Run, gone: Sequence[int]) -> bool:
    """Takes these layers out of the run, if they are still there; whether any were."""
    if not set(gone) & set(run.built.layers):
        return False
    optimizer.forget(run.adam, trained.shrink(run.built, run.pruner, gone))
    run.left = None
    return True


class Mean:
    """Mean training loss and speed since the last evaluation, without waiting for the device."""

    def __init__(self, device: torch.device) -> None:
        self.sum, self.steps, self.rows = torch.zeros((), device=device), 0, 0
        self.start = time.perf_counter()

    def add(self, loss: torch.Tensor, rows: int) -> None:
        self.sum, self.steps, self.rows = self.sum + loss, self.steps + 1, self.rows + rows

    def report(self) -> Report:
        seconds = time.perf_counter() - self.start
        if dist.is_initialized():
            dist.all_reduce(self.sum)
            self.sum = self.sum / dist.get_world_size()
        loss = float(self.sum / self.steps)
        return {"train_loss": loss, "rows_per_second": self.rows / seconds}


def _parallel(run: Run) -> nn.Module:
    """The model under DDP; what the pruner averages itself is left alone.

    Some parameters may go unused (XLNet has such). A static graph knows without a search at every
    step, but can't skip the exchange between micro-batches."""
    own = {id(p) for p in run.pruner.noisy} if run.pruner else set()
    names = [name for name, p in run.forward.named_parameters() if id(p) in own]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(run.forward, names)
    static = run.trial.micro_batches == 1
    return DistributedDataParallel(
        run.forward, static_graph=static, find_unused_parameters=not static
    )


def _backward(run: Run, model: nn.Module, rows: np.ndarray, everyone: np.ndarray) -> torch.Tensor:
    """Gradients of this worker's rows, in as many parts as asked for; gives their mean loss.

    A part counts by what its loss averages (rows, or labelled pieces), so that parts and workers,
    whose gradients are averaged, add up to the loss of ``everyone``'s rows as one batch.
    """
    counts = run.data["train"].counts
    share = (dist.get_world_size() if dist.is_initialized() else 1) / max(1, counts[everyone].sum())
    total = torch.zeros((), device=run.device)
    parts = np.array_split(rows, min(run.trial.micro_batches, len(rows)))
    for i, part in enumerate(parts):
        shared = isinstance(model, DistributedDataParallel) and i < len(parts) - 1
        # One exchange a step.
        with cast("DistributedDataParallel", model).no_sync() if shared else nullcontext():
            loss = _loss(run, model, part)
            (loss * float(counts[part].sum() * share)).backward()
        total += loss.detach() * float(counts[part].sum() / max(1, counts[rows].sum()))
    return total


def _loss(run: Run, model: nn.Module, rows: np.ndarray) -> torch.Tensor:
    """The task's loss on these rows, or its mix with the teacher's."""
    data = run.data["train"]
    batch = {k: v.to(run.device) for k, v in data.batch(rows).items()}
    targets = {k: batch.pop(k) for k in data.targets}
    answer = heads.logits(model(**batch), batch["attention_mask"])
    loss = heads.loss(run.task.head, answer, targets)
    if run.teacher is None:
        return loss
    settings = run.teacher.settings
    taught = run.teacher.loss(run.task.head, rows, answer, targets)
    return settings.alpha_ce * loss + settings.alpha_kd * taught


def _measure(run: Run, step: int, final: bool) -> tuple[Evaluation, Report]:
    with run.pruner.frozen() if run.pruner else nullcontext():
        size = 4 * run.trial.batch_size  # no gradients to keep, so larger batches fit
        found = evaluate(run.forward, run.data["dev"], size, run.device)
        others = found.others | (_further(run, size) if final else {})
        if run.pruner or run.left is None:  # without masks nothing is lost on the way
            built = run.built
            run.left = count(built.model, built.stack.modules, run.pruner, built.whole)
        matrices = run.pruner.kept() if run.pruner and final else []
        learned = run.built.fusion.numbers()
        speed = _speed(run) if final else {}
    left = run.left
    more: Report = {"matrices": [list(kept) for kept in matrices]} if matrices else {}
    more |= {"others": others} if others else {}
    more |= {"dropped": run.built.dropped} if run.built.dropped else {}
    more |= found.halves(run.task) if final and run.trial.data.dev_half is None else {}
    report = (
        learned
        | speed
        | more
        | {
            "step": step,
            "epoch": step / run.per_epoch,
            "lambda": run.pruner.multiplier if run.pruner else 0.0,
            "metric": found.metric,
            "loss": found.loss,
            "trivial": found.trivial,
            "remaining": left.remaining,
            "density": left.density,
            "nonzero": left.nonzero,
            "parameters": left.total,
            "layers": len(run.built.layers),
            "final": final,
            "status": "running",
            "reason": "",
        }
    )
    return found, report


def _speed(run: Run) -> Report:
    """What the model weighs, stored dense, and the seconds of a forward where it was trained."""
    shape = (SHAPE[0], min(SHAPE[1], run.trial.data.max_length))
    (seconds,) = latencies([run.built.model], rounds=7, shape=shape, device=run.device)
    return {"latency": seconds, "bytes": weight_bytes(run.built.model)}


def _further(run: Run, size: int) -> dict[str, float]:
    """The metric on the task's other dev sets, where they can be had."""
    found, tokenizer = {}, backbone.tokenizer(run.trial.backbone)
    for part in run.task.further_parts(run.trial.data):
        data = encoding.whole(run.task, run.trial.data, part, tokenizer)
        data = encoding.take(run.task, run.trial.data, "dev", run.trial.seed, data)
        if run.trial.mode == "features":
            data = features.prepare(run.built, data, size, run.device)
        found[part] = evaluate(run.forward, data, size, run.device).metric
    return found


def _verdict(now: Report, broken: bool, pruning: Pruning | None) -> Report:
    reasons = []
    if broken or not math.isfinite(now["loss"]):
        reasons.append(f"non-finite loss at step {now['step']}")
    elif not now["metric"] > now["trivial"]:  # NaN too
        reasons.append(f"metric {now['metric']:.4f} is no better than a constant answer")
    status = "diverged" if reasons else "completed"
    target = pruning.target if pruning else None
    if target is not None and abs(now["density"] - target) > TOLERANCE:
        reasons.append(f"density {now['density']:.4f} missed its target {target:g}")
    return {"status": status, "reason": "; ".join(reasons)}


def _finite(report: Report) -> Report:
    """NaN would leave the search waiting for ever: what is not finite is not reported."""
    kept = {k: v for k, v in report.items() if not isinstance(v, float) or math.isfinite(v)}
    return {k: _finite(v) if isinstance(v, dict) else v for k, v in kept.items()}


def _seed(seed: int, step: int, rank: int) -> None:
    """Dropout and L0 noise: the same when resumed here, different on every worker."""
    words = np.random.SeedSequence([seed, step, rank]).generate_state(2)
    torch.manual_seed((int(words[0]) << 32 | int(words[1])) & (2**63 - 1))
