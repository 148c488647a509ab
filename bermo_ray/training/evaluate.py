"""Evaluation of a split, by one worker or shared between several."""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import nn

from bermo_ray.record import NAN
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.metrics import constant_metric, measure_metrics
from bermo_ray.tasks.splits import split_halves
from bermo_ray.tasks.task import Task
from bermo_ray.training.batches import to_device
from bermo_ray.training.setup import TrainingRun


@dataclass(frozen=True)
class Evaluation:
    """What a model reaches on a split, and its predictions.

    Attributes:
        task: What was measured.
        metric: The task's own metric.
        other_metrics: Its extra metrics by name.
        loss: The head's mean loss; may be non-finite.
        constant_metric: What a constant answer would reach.
        row_numbers: The numbers of the rows in the complete split.
        predicted: One entry per row.
        gold: What is right, one entry per row.
        whole_dev: Whether all rows choose and all verify; else half of them each.
    """

    task: Task
    metric: float
    other_metrics: dict[str, float]
    loss: float
    constant_metric: float
    row_numbers: list[int]
    predicted: list[Any]
    gold: list[Any]
    whole_dev: bool = False

    @functools.cached_property
    def metric_selection(self) -> float:
        """The metric on the rows that choose."""
        return self._metric_of(self._halves[0])

    @functools.cached_property
    def metric_verification(self) -> float:
        """The metric on the rows that verify; NaN where the only row chooses."""
        verifying = self._halves[1]
        return self._metric_of(verifying) if len(verifying) else NAN

    @property
    def verifying_rows(self) -> int:
        """How many rows verify."""
        return len(self._halves[1])

    @functools.cached_property
    def _halves(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the rows that choose, and of those that verify."""
        count = len(self.row_numbers)
        if self.whole_dev:
            return np.arange(count), np.arange(count)
        return split_halves(count, self.task.head.row_classes(self.gold))

    def _metric_of(self, indices: np.ndarray) -> float:
        predicted, gold = ([side[i] for i in indices] for side in (self.predicted, self.gold))
        name, labels = self.task.metric, self.task.labels
        return measure_metrics((name,), predicted, gold, labels, self.loss)[name]

    def table(self) -> pa.Table:
        """One row per row of the split: its number, what is right, what was predicted, whether that
        is right (null for kinds that know no right and wrong), and whether the row verifies."""
        right = self.task.head.is_right(self.predicted, self.gold)
        verifies = np.zeros(len(self.gold), dtype=bool)
        verifies[self._halves[1]] = True
        return pa.table(
            {
                "row": self.row_numbers,
                "gold": self.gold,
                "predicted": self.predicted,
                "right": pa.nulls(len(self.gold), pa.bool_()) if right is None else right,
                "verifies": verifies,
            }
        )


class RowResult(NamedTuple):
    """What one encoded row adds."""

    row: int  # its index in the split
    batch_loss: float  # a mean
    prediction: Any


def evaluate_dev(run: TrainingRun) -> Evaluation:
    """What a run's network, as it is now, reaches on the dev set."""
    data, size, device = run.data["dev"], run.evaluation_batch_size, run.device
    with run.precision.forward():
        return evaluate(run.network, data, size, device, run.trial.data.whole_dev)


def evaluate(
    network: nn.Module,
    data: EncodedRows,
    batch_size: int,
    device: torch.device,
    whole_dev: bool = False,
) -> Evaluation:
    """Metrics and mean loss over all rows.

    Under several workers each takes every n-th row and the answers are gathered, so every row
    counts once however the rows divide; all workers get the same numbers. The caller sees to masks
    being folded in (``Pruner.frozen``). A non-finite loss is returned as it is. With ``whole_dev``
    all rows both choose and verify.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    results = predict_rows(network, data, data.rows_by_length[rank::world], batch_size, device)
    if world > 1:
        parts: list[Any] = [None] * world
        dist.all_gather_object(parts, results)
        results = [result for part in parts for result in part]
    results.sort(key=lambda result: result.row)
    # A batch's mean counts as often as it has rows, or labelled pieces.
    loss = float(np.average([r.batch_loss for r in results], weights=data.loss_counts))
    task = data.task
    row_numbers, predicted, gold = task.head.collect(data, [r.prediction for r in results])
    names = (task.metric, *task.extra_metrics)
    metrics = measure_metrics(names, predicted, gold, task.labels, loss)
    return Evaluation(
        task=task,
        metric=metrics.pop(task.metric),
        other_metrics=metrics,
        loss=loss,
        constant_metric=constant_metric(task.metric, gold),
        row_numbers=row_numbers,
        predicted=predicted,
        gold=gold,
        whole_dev=whole_dev,
    )


@torch.no_grad()
def predict_rows(
    network: nn.Module,
    data: EncodedRows,
    rows: np.ndarray,
    batch_size: int,
    device: torch.device,
) -> list[RowResult]:
    """Predictions and losses of these rows; neighbours share a batch."""
    head, results = data.task.head, []
    was_training = network.training
    network.eval()
    for i in range(0, len(rows), batch_size):
        part = rows[i : i + batch_size]
        batch = to_device(data.batch(part), device)
        gold = {name: batch.pop(name) for name in data.gold}
        logits = head.logits(network(**batch), batch["attention_mask"])
        loss = float(head.loss(logits, gold))
        predictions = head.predict(data, part, logits)
        for row, prediction in zip(part, predictions, strict=True):
            results.append(RowResult(int(row), loss, prediction))
    network.train(was_training)
    return results
