"""Evaluation of a split, by one worker or shared between several."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import nn

from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.metrics import constant_metric, measure_metrics
from bermo_ray.tasks.splits import split_halves
from bermo_ray.tasks.task import Task


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
    """

    task: Task
    metric: float
    other_metrics: dict[str, float]
    loss: float
    constant_metric: float
    row_numbers: list[int]
    predicted: list[Any]
    gold: list[Any]

    def half_metrics(self) -> dict[str, float]:
        """The metric on either half of the rows, as ``metric_selection`` and
        ``metric_verification``; of a single row there are none."""
        if len(self.row_numbers) < 2:
            return {}
        halves = split_halves(len(self.row_numbers))
        names = ("metric_selection", "metric_verification")
        return {name: self._metric_of(half) for name, half in zip(names, halves, strict=True)}

    def _metric_of(self, indices: np.ndarray) -> float:
        predicted, gold = ([side[i] for i in indices] for side in (self.predicted, self.gold))
        name, labels = self.task.metric, self.task.labels
        return measure_metrics((name,), predicted, gold, labels, self.loss)[name]

    def table(self) -> pa.Table:
        """One row per row of the split: its number, what is right, what was predicted, and whether
        that is right (null for kinds that know no right and wrong)."""
        right = self.task.head.is_right(self.predicted, self.gold)
        return pa.table(
            {
                "row": self.row_numbers,
                "gold": self.gold,
                "predicted": self.predicted,
                "right": pa.nulls(len(self.gold), pa.bool_()) if right is None else right,
            }
        )


class _RowResult(NamedTuple):
    """What one encoded row adds."""

    row: int  # its index in the split
    batch_loss: float  # a mean
    prediction: Any


def evaluate(
    network: nn.Module, data: EncodedRows, batch_size: int, device: torch.device
) -> Evaluation:
    """Metrics and mean loss over all rows.

    Under several workers each takes every n-th row and the answers are gathered, so every row
    counts once however the rows divide; all workers get the same numbers. The caller sees to masks
    being folded in (``Pruner.frozen``). A non-finite loss is returned as it is.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    results = _predict_rows(network, data, data.rows_by_length[rank::world], batch_size, device)
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
    )


@torch.no_grad()
def _predict_rows(
    network: nn.Module,
    data: EncodedRows,
    rows: np.ndarray,
    batch_size: int,
    device: torch.device,
) -> list[_RowResult]:
    """Predictions and losses of these rows; neighbours share a batch."""
    head, results = data.task.head, []
    was_training = network.training
    network.eval()
    for i in range(0, len(rows), batch_size):
        part = rows[i : i + batch_size]
        batch = {name: values.to(device) for name, values in data.batch(part).items()}
        gold = {name: batch.pop(name) for name in data.gold}
        logits = head.logits(network(**batch), batch["attention_mask"])
        loss = float(head.loss(logits, gold))
        predictions = head.predict(data, part, logits)
        for row, prediction in zip(part, predictions, strict=True):
            results.append(_RowResult(int(row), loss, prediction))
    network.train(was_training)
    return results
