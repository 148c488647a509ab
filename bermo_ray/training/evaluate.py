"""Evaluation of a whole split, by one worker or shared between several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from bermo_ray.models import heads
from bermo_ray.tasks.encoding import Encoded
from bermo_ray.tasks.metrics import METRICS, trivial

LONGEST_ANSWER = 30  # pieces; a longer span is no answer


@dataclass(frozen=True)
class Evaluation:
    """``metric`` is the task's own; ``trivial`` is what a constant answer would reach."""

    metric: float
    loss: float
    trivial: float
    predicted: list[Any]
    target: list[Any]


def evaluate(model: nn.Module, data: Encoded, batch_size: int, device: torch.device) -> Evaluation:
    """Metric and mean loss over all rows.

    Under several workers each takes every n-th row and the answers are gathered, so every row
    counts once however the rows divide; all workers get the same numbers. The caller sees to
    masks being folded (``Pruner.frozen``). A non-finite loss is returned as it is.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    # Rows of like length share a batch: less padding, and the answers are put back in order below.
    lengths = [len(ids) for ids in data.inputs["input_ids"]]
    mine = sorted(range(rank, len(data), world), key=lambda row: lengths[row])
    was_training = model.training
    model.eval()
    found: list[tuple[int, float, Any]] = []
    with torch.no_grad():
        for i in range(0, len(mine), batch_size):
            rows = mine[i : i + batch_size]
            batch = {k: v.to(device) for k, v in data.batch(rows).items()}
            targets = {k: batch.pop(k) for k in data.targets}
            answer = heads.logits(model(**batch))
            loss = float(heads.loss(data.task.head, answer, targets))
            found += [
                (row, loss, p)
                for row, p in zip(rows, _predictions(data, rows, answer), strict=True)
            ]
    model.train(was_training)
    if world > 1:
        parts: list[Any] = [None] * world
        dist.all_gather_object(parts, found)
        found = [item for part in parts for item in part]
    found.sort(key=lambda item: item[0])
    predicted, target = [p for _, _, p in found], _targets(data)
    return Evaluation(
        metric=METRICS[data.task.metric](predicted, target, data.task.labels),
        loss=float(np.mean([loss for _, loss, _ in found])),
        trivial=trivial(data.task.metric, target),
        predicted=predicted,
        target=target,
    )


def _targets(data: Encoded) -> list[Any]:
    return data.extra["answers"] if data.task.head == "span" else data.targets["labels"]


def _predictions(data: Encoded, rows: Sequence[int], answer: heads.Logits) -> list[Any]:
    kind = data.task.head
    if kind == "sequence":
        return answer[0].argmax(-1).tolist()
    if kind == "regression":
        return answer[0].squeeze(-1).tolist()
    if kind == "span":
        starts, ends = answer[0].cpu(), answer[1].cpu()
        return [
            _best_span(
                data.extra["offsets"][row],
                data.extra["contexts"][row],
                starts[i, data.own(row, starts.shape[1])],
                ends[i, data.own(row, starts.shape[1])],
            )
            for i, row in enumerate(rows)
        ]
    best = answer[0].argmax(-1)
    return [best[i, data.own(row, best.shape[1])].tolist() for i, row in enumerate(rows)]


def _best_span(
    offsets: list[tuple[int, int] | None], context: str, start: torch.Tensor, end: torch.Tensor
) -> str:
    """Text of the span with the highest start + end score, in the context, start before end."""
    inside = torch.tensor([i for i, o in enumerate(offsets) if o is not None])
    scores = start[inside][:, None] + end[inside][None, :]
    allowed = torch.ones_like(scores, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    best = int(scores.masked_fill(~allowed, -torch.inf).argmax())
    first, last = divmod(best, len(inside))
    begin, finish = offsets[int(inside[first])], offsets[int(inside[last])]
    assert begin is not None
    assert finish is not None
    return context[begin[0] : finish[1]]
