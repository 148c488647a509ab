"""Encoded rows: ragged arrays of word pieces, and the padded batches that models take.

Shapes: b rows of a batch, s word pieces of its longest row, n states, d the encoder's width.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

if TYPE_CHECKING:  # a task's head kind is built on this module
    from bermo_ray.tasks.task import Task

IGNORED = -100  # the label that torch's cross entropy leaves out
OUTSIDE = -1  # index of what is not there: a piece out of the context, a word that was cut away

# (columns of a batch [b, s], numbers of its rows [b], (seed, epoch)) -> those columns drawn anew.
Redraw = Callable[[dict[str, np.ndarray], np.ndarray, tuple[int, int]], dict[str, np.ndarray]]
States = Callable[[Sequence[int] | np.ndarray], list[np.ndarray]]  # rows -> [s, n, d] of each


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in one array: row r is ``values[begin[r]:end[r]]``."""

    values: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> "Ragged":
        """The rows of a list column; its memory is taken as it is."""
        offsets = column.offsets.to_numpy()
        return cls(column.values.to_numpy(), offsets[:-1], offsets[1:])

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.begin[row] : self.end[row]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        """Values of each row."""
        return self.end - self.begin

    def take(self, rows: np.ndarray) -> "Ragged":
        """Those rows; nothing is copied."""
        return Ragged(self.values, self.begin[rows], self.end[rows])

    def cut(self, tokens: slice) -> "Ragged":
        """Of every row, the values of the slice; nothing is copied."""
        bounds = np.array([tokens.indices(n)[:2] for n in self.lengths]).reshape(-1, 2)
        return Ragged(self.values, self.begin + bounds[:, 0], self.begin + bounds[:, 1])

    def padded(self, rows: np.ndarray, width: int, fill: int, left: bool) -> np.ndarray:
        """``[b, width]``: the rows one below the other, padded behind or, with ``left``, in
        front."""
        begin, lengths = self.begin[rows][:, None], self.lengths[rows][:, None]
        index = np.arange(width)[None, :] - (width - lengths if left else 0)
        if (lengths == width).all():
            return self.values[begin + index].astype(np.int64)
        present = (index >= 0) & (index < lengths)
        out = np.full(present.shape, fill, dtype=np.int64)
        out[present] = self.values[(begin + index)[present]]
        return out

    def stamp(self) -> bytes:
        """A digest that changes whenever the rows do."""
        digest = hashlib.blake2b(self.lengths.astype(np.int64).tobytes())
        for row in self:
            digest.update(row.tobytes())
        return digest.digest()


@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows of one split: word pieces, gold, and what turns predictions back into text.

    Attributes:
        task: Whose rows they are; its head kind names ``gold`` and ``extras``.
        inputs: ``input_ids`` and, where the tokenizer has them, ``token_type_ids``.
        gold: What the loss is measured against, one label per row or one per piece.
        row_numbers: Of the rows in the complete split; windows of one question share theirs.
        pad_id: The tokenizer's padding piece.
        pad_left: Whether rows are padded in front; XLNet reads the end of a row.
        extras: What evaluation needs besides, one entry per encoded row.
        redraw: Draws inputs and gold of training anew; None: they are fixed.
        states: A frozen encoder's states of the tokens in ``inputs``; None: they are computed.
    """

    task: "Task"
    inputs: dict[str, Ragged]
    gold: dict[str, Ragged | np.ndarray]
    row_numbers: np.ndarray
    pad_id: int
    pad_left: bool = False
    extras: dict[str, Ragged | pa.Array] = field(default_factory=dict)
    redraw: Redraw | None = None
    states: States | None = None

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Pieces of each row."""
        return self.inputs["input_ids"].lengths

    @functools.cached_property
    def rows_by_length(self) -> np.ndarray:
        """Indices of the rows, shortest first: neighbours share a batch with little padding."""
        return np.argsort(self.lengths, kind="stable")

    @functools.cached_property
    def loss_counts(self) -> np.ndarray:
        """What each row adds to the number that the head's loss averages over: 1, or its labelled
        pieces."""
        labels = self.gold.get("labels")
        if not isinstance(labels, Ragged):
            return np.ones(len(self))
        return np.array([np.count_nonzero(row != IGNORED) for row in labels])

    def take(self, rows: np.ndarray) -> "EncodedRows":
        """Those encoded rows; their pieces are not copied."""
        return replace(
            self,
            inputs={name: values.take(rows) for name, values in self.inputs.items()},
            gold={
                name: values.take(rows) if isinstance(values, Ragged) else values[rows]
                for name, values in self.gold.items()
            },
            row_numbers=self.row_numbers[rows],
            extras={name: values.take(rows) for name, values in self.extras.items()},
        )

    def batch(
        self, rows: Sequence[int] | np.ndarray, draw: tuple[int, int] | None = None
    ) -> dict[str, torch.Tensor]:
        """Those rows as tensors, padded to the longest of them.

        Args:
            rows: Their indices.
            draw: Seed and epoch of training, by which random gold are drawn anew; None, as in
                evaluation: they are those of the row's number alone.

        Returns:
            ``input_ids``, ``attention_mask`` and perhaps ``token_type_ids`` ``[b, s]``; the gold
            ``[b]`` or ``[b, s]``; ``states`` ``[n, b, s, d]`` where there are any.
        """
        rows = np.asarray(rows)
        lengths = self.lengths[rows]
        width, left = int(lengths.max()), self.pad_left
        out = {
            name: values.padded(rows, width, self.pad_id if name == "input_ids" else 0, left)
            for name, values in self.inputs.items()
        }
        index = np.arange(width)[None, :]
        present = index >= width - lengths[:, None] if left else index < lengths[:, None]
        out["attention_mask"] = present.astype(np.int64)
        shift = width - lengths if left and self.task.head.gold_are_positions else None
        for name, values in self.gold.items():
            if isinstance(values, Ragged):
                out[name] = values.padded(rows, width, IGNORED, left)
            else:
                out[name] = values[rows] if shift is None else values[rows] + shift
        if draw is not None and self.redraw is not None:
            out |= self.redraw(out, self.row_numbers[rows], draw)
        tensors = {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in out.items()}
        if self.states is not None:
            tensors["states"] = self._padded_states(rows, width, self.states)
        return tensors

    def piece_slice(self, row: int, width: int) -> slice:
        """Where a row's pieces stand in a batch padded to ``width``."""
        length = int(self.lengths[row])
        return slice(width - length, width) if self.pad_left else slice(length)

    def _padded_states(self, rows: np.ndarray, width: int, states: States) -> torch.Tensor:
        """``[n, b, width, d]``; padding is 0."""
        by_row = states(rows)
        if all(len(row) == width for row in by_row):
            return torch.from_numpy(np.stack(by_row, axis=1)).permute(2, 1, 0, 3)
        _, count, size = by_row[0].shape
        out = np.zeros((count, len(rows), width, size), dtype=np.float32)
        for i, row in enumerate(rows):
            out[:, i, self.piece_slice(row, width)] = by_row[i].swapaxes(0, 1)
        return torch.from_numpy(out)
