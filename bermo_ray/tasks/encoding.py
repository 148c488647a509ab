"""Rows to word pieces, and word pieces to padded batches."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from bermo_ray.errors import UserError
from bermo_ray.tasks.task import Task

IGNORED = -100  # what torch's cross entropy leaves out
MASKED_SHARE = 0.15  # of a row's pieces, in the masked task


# Rows -> for each, (tokens, states, width).
States = Callable[[Sequence[int] | np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Encoded:
    """Encoded rows of one split. Each entry of ``inputs`` and ``targets`` holds one value a row.

    ``inputs``: ``input_ids``, ``attention_mask`` and, where the tokenizer has them,
    ``token_type_ids``. ``targets``: ``labels``, or ``start_positions`` and ``end_positions``.
    ``extra``: what the metric needs besides (offsets and context of spans).
    """

    task: Task
    inputs: dict[str, list[list[int]]]
    targets: dict[str, list[Any]]
    extra: dict[str, list[Any]]
    pad_id: int
    pad_left: bool = False  # XLNet reads the end of a row
    states: States | None = None  # an encoder's, of the tokens in ``inputs``: frozen features

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """What a row adds to the number that the head's loss averages over: 1, or its labelled
        pieces."""
        if self.task.head not in ("token", "masked"):
            return np.ones(len(self))
        return np.array([sum(t != IGNORED for t in row) for row in self.targets["labels"]])

    def batch(self, rows: Sequence[int] | np.ndarray) -> dict[str, torch.Tensor]:
        """Those rows, padded to the longest of them."""
        width = max(len(self.inputs["input_ids"][r]) for r in rows)
        fill = {"input_ids": self.pad_id}
        out = {
            name: self._padded(rows, values, width, fill.get(name, 0))
            for name, values in self.inputs.items()
        }
        for name, values in self.targets.items():
            chosen = [values[r] for r in rows]
            if isinstance(chosen[0], list):
                out[name] = self._padded(rows, values, width, IGNORED)
            elif name.endswith("_positions"):
                starts = [self.own(r, width).start or 0 for r in rows]
                out[name] = torch.tensor(chosen) + torch.tensor(starts)
            else:
                out[name] = torch.tensor(chosen)
        if self.states is not None:
            out["states"] = self._states(rows, width, self.states)
        return out

    def own(self, row: int, width: int) -> slice:
        """Where a row's pieces stand in a batch padded to ``width``."""
        length = len(self.inputs["input_ids"][row])
        return slice(width - length, width) if self.pad_left else slice(length)

    def _padded(
        self, rows: Sequence[int] | np.ndarray, values: list[Any], width: int, fill: int
    ) -> torch.Tensor:
        chosen = [values[row] for row in rows]
        if all(len(row) == width for row in chosen):
            return torch.tensor(chosen)
        out = np.full((len(rows), width), fill, dtype=np.int64)
        for i, row in enumerate(rows):
            out[i, self.own(row, width)] = values[row]
        return torch.from_numpy(out)

    def _states(self, rows: Sequence[int] | np.ndarray, width: int, states: States) -> torch.Tensor:
        found = states(rows)
        if all(len(row) == width for row in found):
            return torch.from_numpy(np.stack(found, axis=1)).permute(2, 1, 0, 3)
        _, count, size = found[0].shape
        out = np.zeros((count, len(rows), width, size), dtype=np.float32)
        for i, row in enumerate(rows):
            out[:, i, self.own(row, width)] = found[i].swapaxes(0, 1)
        return torch.from_numpy(out)


def encode(task: Task, rows: pa.Table, tokenizer: Any, max_length: int) -> Encoded:
    """Word pieces of all rows and their targets in the shape of the task's head."""
    extra: dict[str, list[Any]] = {}
    if task.head == "token":
        words = rows["words"].to_pylist()
        coded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=max_length)
        tags = rows["tags"].to_pylist()
        labels = [_first_pieces(coded.word_ids(i), tags[i], i) for i in range(len(words))]
        targets: dict[str, list[Any]] = {"labels": labels}
    elif task.head == "span":
        contexts = rows["text_pair"].to_pylist()
        coded = tokenizer(
            rows["text"].to_pylist(),
            contexts,
            truncation="only_second",
            max_length=max_length,
            return_offsets_mapping=True,
        )
        offsets = [
            [o if side == 1 else None for o, side in zip(pairs, coded.sequence_ids(i), strict=True)]
            for i, pairs in enumerate(coded.pop("offset_mapping"))
        ]
        starts = rows["answer_start"].to_pylist()
        answers = rows["answer_text"].to_pylist()
        spans = [
            _pieces_of(pairs, start, start + len(text))
            for pairs, start, text in zip(offsets, starts, answers, strict=True)
        ]
        targets = {
            "start_positions": [s for s, _ in spans],
            "end_positions": [e for _, e in spans],
        }
        extra = {"offsets": offsets, "contexts": contexts, "answers": answers}
    else:
        pair = rows["text_pair"].to_pylist() if task.pair else None
        coded = tokenizer(rows["text"].to_pylist(), pair, truncation=True, max_length=max_length)
        if task.head == "masked":
            coded, targets = _masked(coded, tokenizer)
        else:
            targets = {"labels": rows["label"].to_pylist()}
    left = tokenizer.padding_side == "left"
    return Encoded(task, dict(coded), targets, extra, tokenizer.pad_token_id, left)


def _first_pieces(words: list[int | None], tags: list[int], row: int) -> list[int]:
    """A word's tag stands at its first piece; the other pieces do not count."""
    known = [w for w in words if w is not None]
    if known and max(known) >= len(tags):
        raise UserError(f"row {row}: {max(known) + 1} words but {len(tags)} tags")
    return [
        tags[w] if w is not None and (i == 0 or words[i - 1] != w) else IGNORED
        for i, w in enumerate(words)
    ]


def _pieces_of(offsets: list[Any], start: int, end: int) -> tuple[int, int]:
    """First and last piece of the characters start..end; (0, 0), the [CLS], when cut away."""
    inside = [i for i, o in enumerate(offsets) if o is not None and o[0] < end and o[1] > start]
    return (inside[0], inside[-1]) if inside else (0, 0)


def _masked(coded: Any, tokenizer: Any) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """15 % of the pieces become [MASK] and are the targets; the choice is fixed by the row number,
    so that a number measured twice is the same number."""
    special = set(tokenizer.all_special_ids)
    ids, labels = [], []
    for row, pieces in enumerate(coded["input_ids"]):
        plain = [i for i, p in enumerate(pieces) if p not in special]
        count = max(1, round(MASKED_SHARE * len(plain)))
        chosen = np.random.default_rng(row).permutation(plain)[:count]
        hidden, target = list(pieces), [IGNORED] * len(pieces)
        for i in chosen:
            hidden[i], target[i] = tokenizer.mask_token_id, pieces[i]
        ids.append(hidden)
        labels.append(target)
    return {**coded, "input_ids": ids}, {"labels": labels}
