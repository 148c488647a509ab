"""What a run reports of itself at an evaluation."""

import contextlib
import time
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.pruning.counting import ParameterCount, count_parameters
from bermo_ray.record import NAN, Report
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.encoding import encode_part, encode_split, take_chosen
from bermo_ray.tasks.sources import MissingPartError
from bermo_ray.training import features
from bermo_ray.training.evaluate import Evaluation, evaluate, evaluate_dev
from bermo_ray.training.latency import SHAPE, measure_latencies, weight_bytes
from bermo_ray.training.reporter import describe_hardware
from bermo_ray.training.setup import TrainingRun


class TrainingMeter:
    """Mean training loss and speed since the last evaluation, without waiting for the device."""

    def __init__(self, device: torch.device) -> None:
        self.loss_sum, self.steps, self.rows = torch.zeros((), device=device), 0, 0
        self.start = time.perf_counter()

    def add(self, loss: torch.Tensor, rows: int) -> None:
        """One step on so many rows."""
        self.loss_sum, self.steps = self.loss_sum + loss, self.steps + 1
        self.rows += rows

    def measurements(self) -> dict[str, Any]:
        """Fields of a report; called by every worker, because their losses are averaged."""
        if dist.is_initialized():
            dist.all_reduce(self.loss_sum)
            self.loss_sum = self.loss_sum / dist.get_world_size()
        loss = float(self.loss_sum / self.steps)  # waits for the device's last step
        seconds = time.perf_counter() - self.start
        return {"train_loss": loss, "rows_per_second": self.rows / seconds}


def measure(
    run: TrainingRun, step: int, meter: TrainingMeter, final: bool
) -> tuple[Evaluation, Report]:
    """Evaluates the run after ``step`` on the dev set, with the masks of now folded in; a ``final``
    report has more measurements than those before."""
    trained = meter.measurements()  # before the evaluation, which is no part of training's speed
    with run.pruner.frozen() if run.pruner else nullcontext():
        evaluation = evaluate_dev(run)
        count, other_metrics = _count(run), evaluation.other_metrics
        learned = run.model.fusion.learned_numbers()  # before forwards on other rows
        extra = {}
        if final:
            test = _evaluate_test(run)
            extra = _final_measurements(run) | _reported_measurements(evaluation, test)
            other_metrics = other_metrics | _extra_dev_metrics(run) | _extra_test_metrics(test)
    report = Report(
        step=step,
        epoch=step / run.steps_per_epoch,
        metric=evaluation.metric,
        metric_selection=evaluation.metric_selection,
        metric_verification=evaluation.metric_verification,
        other_metrics=other_metrics,
        constant_metric=evaluation.constant_metric,
        loss=evaluation.loss,
        remaining=count.remaining,
        density=count.density,
        nonzero_parameters=count.nonzero,
        parameters=count.total,
        layers_left=len(run.model.layers_left),
        dropped_layers=run.model.dropped_layers,
        multiplier_now=run.pruner.multiplier if run.pruner else 0.0,
        **learned,
        **extra,
        **trained,
    )
    return evaluation, report


def _count(run: TrainingRun) -> ParameterCount:
    """What remains; without masks nothing is lost on the way, so that it is counted once."""
    if run.pruner or run.count is None:
        model = run.model
        run.count = count_parameters(
            model.network, model.stack.modules, run.pruner, model.undropped_parameters
        )
    return run.count


def _final_measurements(run: TrainingRun) -> dict[str, Any]:
    """What is measured once, at the end."""
    network = run.model.network
    shape = (SHAPE[0], min(SHAPE[1], run.trial.data.max_length))
    return {
        "kept_by_matrix": run.pruner.kept_by_matrix() if run.pruner else [],
        "density_before_shift": run.pruner.density_before_shift if run.pruner else NAN,
        "latency": measure_latencies([network], rounds=7, shape=shape, device=run.device)[0],
        "weight_bytes": weight_bytes(network),
        "hardware": describe_hardware(run.device, run.world_size),
        "precision": run.precision.name,
    }


def _extra_dev_metrics(run: TrainingRun) -> dict[str, float]:
    """The metric on the task's extra dev sets, where they can be had."""
    trial, task = run.trial, run.task
    tokenizer, metrics = load_tokenizer(trial.backbone), {}
    for part in task.available_dev_sets(trial.data):
        data = encode_part(task, trial.data, part, tokenizer)
        data = take_chosen(task, trial.data, "dev", trial.seed, data)
        metrics[part] = _evaluate_on(run, data).metric
    return metrics


def _evaluate_test(run: TrainingRun) -> Evaluation | None:
    """The task's test part, unless it has none with labels or it can't be had."""
    trial, task = run.trial, run.task
    if task.test is None:
        return None
    with contextlib.suppress(MissingPartError):
        tokenizer = load_tokenizer(trial.backbone)
        return _evaluate_on(run, encode_split(task, trial.data, "test", trial.seed, tokenizer))
    return None


def _reported_measurements(dev: Evaluation, test: Evaluation | None) -> dict[str, Any]:
    """The metric on the test part, and how many rows are reported, of that or else of dev."""
    if test is None:
        return {"rows_reported": dev.verifying_rows or len(dev.row_numbers)}
    return {"metric_test": test.metric, "rows_reported": len(test.row_numbers)}


def _extra_test_metrics(test: Evaluation | None) -> dict[str, float]:
    """The task's extra metrics on the test part: ``test_perplexity`` and others."""
    return {} if test is None else {f"test_{n}": v for n, v in test.other_metrics.items()}


def _evaluate_on(run: TrainingRun, data: EncodedRows) -> Evaluation:
    size = run.evaluation_batch_size
    if run.trial.mode == "features":
        data = features.with_states(run.model, data, size, run.device)
    with run.precision.forward():
        return evaluate(run.network, data, size, run.device)
