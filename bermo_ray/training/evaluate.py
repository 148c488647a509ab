"""Evaluation of a whole split, by one worker or shared between several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import nn

from bermo_ray.models import heads
from bermo_ray.tasks.encoded import IGNORED, Answers, Encoded, Ragged
from bermo_ray.tasks.metrics import measured, trivial
from bermo_ray.tasks.task import Task, halves

LONGEST_ANSWER = 30  # pieces; a longer span is no answer
N_BEST = 20  # starts, ends, and spans of a window that are looked at


@dataclass(frozen=True)
class Evaluation:
    """``metric`` is the task's own, ``others`` those it has besides; ``trivial`` is what a constant
    answer would reach. ``predicted`` and ``target`` hold one entry for each of ``rows``, the
    numbers of the rows in the whole split."""

    metric: float
    others: dict[str, float]
    loss: float
    trivial: float
    rows: list[int]
    predicted: list[Any]
    target: list[Any]

    def halves(self, task: Task) -> dict[str, float]:
        """The metric on either half of the rows; of one row there are none."""
        found = {}
        for name, places in zip(("first_half", "second_half"), halves(len(self.rows)), strict=True):
            if len(places) and len(self.rows) > 1:
                predicted, target = ([s[i] for i in places] for s in (self.predicted, self.target))
                own = measured((task.metric,), predicted, target, task.labels, self.loss)
                found[name] = own[task.metric]
        return found

    def table(self) -> pa.Table:
        """Row number, what is right, and what was answered: one row for each of the split's.

        Words and pieces that do not count are left out of lists.
        """
        predicted, target = self.predicted, self.target
        if target and isinstance(target[0], np.ndarray):
            kept = [t != IGNORED for t in target]
            predicted = [p[k] for p, k in zip(predicted, kept, strict=True)]
            target = [t[k] for t, k in zip(target, kept, strict=True)]
        return pa.table({"row": self.rows, "target": target, "predicted": predicted})


class _Answer(NamedTuple):
    """What one encoded row adds."""

    place: int  # in the split
    loss: float  # of its batch, a mean
    prediction: Any


class Span(NamedTuple):
    """A piece of a context, by characters, and how sure a window is of it."""

    score: float
    begin: int
    end: int


def evaluate(model: nn.Module, data: Encoded, batch_size: int, device: torch.device) -> Evaluation:
    """Metrics and mean loss over all rows.

    Under several workers each takes every n-th row and the answers are gathered, so every row
    counts once however the rows divide; all workers get the same numbers. The caller sees to
    masks being folded (``Pruner.frozen``). A non-finite loss is returned as it is.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = data.by_length[rank::world]  # rows of like length share a batch: less padding
    was_training = model.training
    model.eval()
    found: list[_Answer] = []
    with torch.no_grad():
        for i in range(0, len(mine), batch_size):
            part = mine[i : i + batch_size]
            batch = {k: v.to(device) for k, v in data.batch(part).items()}
            targets = {k: batch.pop(k) for k in data.targets}
            answer = heads.logits(model(**batch), batch["attention_mask"])
            loss = float(heads.loss(data.task.head, answer, targets))
            found += [
                _Answer(int(row), loss, p)
                for row, p in zip(part, _predictions(data, part, answer), strict=True)
            ]
    model.train(was_training)
    if world > 1:
        parts: list[Any] = [None] * world
        dist.all_gather_object(parts, found)
        found = [item for part in parts for item in part]
    found.sort(key=lambda item: item.place)
    # A batch's mean counts as often as it has rows, or labelled pieces.
    loss = float(np.average([a.loss for a in found], weights=data.counts))
    task, rows, predicted, target = data.task, *_whole(data, [a.prediction for a in found])
    every = measured((task.metric, *task.also), predicted, target, task.labels, loss)
    return Evaluation(
        metric=every.pop(task.metric),
        others=every,
        loss=loss,
        trivial=trivial(task.metric, target),
        rows=rows,
        predicted=predicted,
        target=target,
    )


def _whole(data: Encoded, predicted: list[Any]) -> tuple[list[int], list[Any], list[Any]]:
    """Row numbers, predictions and targets of the split's own rows."""
    if data.answers is not None:
        return _answered(data.rows, data.answers, predicted)
    if data.words is not None:
        return data.rows.tolist(), predicted, list(data.words.tags)
    labels = data.targets["labels"]
    return data.rows.tolist(), predicted, list(labels) if isinstance(labels, Ragged) else labels.tolist()  # fmt: skip # noqa: E501


def _answered(
    rows: np.ndarray, answers: Answers, windows: list[list[Span]]
) -> tuple[list[int], list[Any], list[Any]]:
    """For each question the text of the best span of all its windows; '' where there is none."""
    first = [i for i in range(len(rows)) if i == 0 or rows[i] != rows[i - 1]]
    predicted = []
    for begin, end in zip(first, [*first[1:], len(rows)], strict=True):
        spans = [span for window in windows[begin:end] for span in window]
        best = max(spans, default=Span(0.0, 0, 0))
        predicted.append(answers.contexts[begin].as_py()[best.begin : best.end])
    return rows[first].tolist(), predicted, answers.texts.take(first).to_pylist()


def _predictions(data: Encoded, rows: np.ndarray, answer: heads.Logits) -> list[Any]:
    kind = data.task.head
    if kind == "sequence":
        return answer[0].argmax(-1).tolist()
    if kind == "regression":
        return answer[0].squeeze(-1).tolist()
    if kind == "span":
        return best_spans(data, rows, answer[0].cpu(), answer[1].cpu())
    best = answer[0].argmax(-1).cpu().numpy()
    if data.words is not None:  # a word that was cut away is answered with the first label, O
        places = [data.words.places[row] for row in rows]
        own = [best[i, data.own(row, best.shape[1])] for i, row in enumerate(rows)]
        return [np.where(p >= 0, o[p], 0) for p, o in zip(places, own, strict=True)]
    return [best[i, data.own(row, best.shape[1])] for i, row in enumerate(rows)]


def best_spans(
    data: Encoded, rows: Sequence[int] | np.ndarray, start: torch.Tensor, end: torch.Tensor
) -> list[list[Span]]:
    """The best spans of each window, best first: of the :data:`N_BEST` likeliest starts and ends
    those that lie in the context, in order, and are not too long. ``start``, ``end``: (rows,
    pieces), the logits."""
    assert data.answers is not None
    rows, width = np.asarray(rows), start.shape[1]
    first, last = (
        torch.from_numpy(places.padded(rows, width, -1, data.pad_left))
        for places in (data.answers.starts, data.answers.ends)
    )
    k = min(N_BEST, width)
    outside = first < 0
    s_score, s_place = start.masked_fill(outside, -torch.inf).topk(k)
    e_score, e_place = end.masked_fill(outside, -torch.inf).topk(k)
    gap = e_place[:, None, :] - s_place[:, :, None]
    score = s_score[:, :, None] + e_score[:, None, :]
    score = score.masked_fill((gap < 0) | (gap >= LONGEST_ANSWER), -torch.inf).flatten(1)
    best, place = score.topk(min(N_BEST, score.shape[1]))
    begin = first.gather(1, s_place.gather(1, place // k))
    finish = last.gather(1, e_place.gather(1, place % k))
    return [
        [Span(*span) for span in zip(*columns, strict=True) if span[0] > -np.inf]
        for columns in zip(best.tolist(), begin.tolist(), finish.tolist(), strict=True)
    ]
