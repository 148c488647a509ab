"""Encoded rows: ragged arrays of word pieces, and the padded batches that models take."""

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch

from bermo_ray.tasks.task import Task

IGNORED = -100  # what torch's cross entropy leaves out
OUTSIDE = -1  # place of what is not there: an offset out of the context, a word that was cut away

# Rows -> for each, (tokens, states, width).
States = Callable[[Sequence[int] | np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in one array: row r is ``values[begin[r]:end[r]]``."""

    values: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, column: pa.Array) -> "Ragged":
        """A list column's memory, as it is."""
        places = column.offsets.to_numpy()
        return cls(column.values.to_numpy(), places[:-1], places[1:])

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.begin[row] : self.end[row]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        return self.end - self.begin

    def take(self, rows: np.ndarray) -> "Ragged":
        """Those rows; nothing is copied."""
        return Ragged(self.values, self.begin[rows], self.end[rows])

    def cut(self, tokens: slice) -> "Ragged":
        """Of every row, the tokens of the slice."""
        places = np.array([tokens.indices(n)[:2] for n in self.lengths]).reshape(-1, 2)
        return Ragged(self.values, self.begin + places[:, 0], self.begin + places[:, 1])

    def padded(self, rows: np.ndarray, width: int, fill: int, left: bool) -> np.ndarray:
        """(rows, width): the rows side by side, padded behind or, with ``left``, in front."""
        begin, lengths = self.begin[rows][:, None], self.lengths[rows][:, None]
        place = np.arange(width)[None, :] - (width - lengths if left else 0)
        if (lengths == width).all():
            return self.values[begin + place].astype(np.int64)
        there = (place >= 0) & (place < lengths)
        out = np.full(there.shape, fill, dtype=np.int64)
        out[there] = self.values[(begin + place)[there]]
        return out

    def stamp(self) -> bytes:
        """Identity of the rows' content."""
        digest = hashlib.blake2b(self.lengths.astype(np.int64).tobytes())
        for row in self:
            digest.update(row.tobytes())
        return digest.digest()


@dataclass(frozen=True)
class Answers:
    """What turns piece positions of a span task back into text, and what is right.

    A question may have several windows; its context and answers are kept at the first of them.
    """

    starts: Ragged  # first character of each piece in the context, or OUTSIDE
    ends: Ragged
    contexts: pa.Array
    texts: pa.Array


@dataclass(frozen=True)
class Words:
    """All words of a tagged row: what is right, and where its first piece stands, or OUTSIDE where
    the row was cut before it (or it has none)."""

    tags: Ragged
    places: Ragged


@dataclass(frozen=True)
class Encoded:
    """Encoded rows of one split, word pieces and targets.

    ``inputs``: ``input_ids`` and, where the tokenizer has them, ``token_type_ids``. ``targets``:
    ``labels``, or ``start_positions`` and ``end_positions``. ``rows`` are the rows' numbers in the
    whole split; windows of one question have the same.
    """

    task: Task
    inputs: dict[str, Ragged]
    targets: dict[str, Ragged | np.ndarray]
    rows: np.ndarray
    pad_id: int
    pad_left: bool = False  # XLNet reads the end of a row
    answers: Answers | None = None
    words: Words | None = None
    states: States | None = None  # an encoder's, of the tokens in ``inputs``: frozen features

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Pieces of each row."""
        return self.inputs["input_ids"].lengths

    @functools.cached_property
    def by_length(self) -> np.ndarray:
        """Row numbers, shortest first: neighbours share a batch with little padding."""
        return np.argsort(self.lengths, kind="stable")

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """What a row adds to the number that the head's loss averages over: 1, or its labelled
        pieces."""
        labels = self.targets.get("labels")
        if not isinstance(labels, Ragged):
            return np.ones(len(self))
        return np.array([np.count_nonzero(row != IGNORED) for row in labels])

    def take(self, rows: np.ndarray) -> "Encoded":
        """Those encoded rows; their pieces are not copied."""
        answers = self.answers
        if answers:
            answers = Answers(
                answers.starts.take(rows),
                answers.ends.take(rows),
                answers.contexts.take(rows),
                answers.texts.take(rows),
            )
        return replace(
            self,
            inputs={name: values.take(rows) for name, values in self.inputs.items()},
            targets={
                name: values.take(rows) if isinstance(values, Ragged) else values[rows]
                for name, values in self.targets.items()
            },
            rows=self.rows[rows],
            answers=answers,
            words=self.words and Words(self.words.tags.take(rows), self.words.places.take(rows)),
        )

    def batch(self, rows: Sequence[int] | np.ndarray) -> dict[str, torch.Tensor]:
        """Those rows, padded to the longest of them."""
        rows = np.asarray(rows)
        lengths = self.lengths[rows]
        width, left = int(lengths.max()), self.pad_left
        out = {
            name: values.padded(rows, width, self.pad_id if name == "input_ids" else 0, left)
            for name, values in self.inputs.items()
        }
        place = np.arange(width)[None, :]
        there = place >= width - lengths[:, None] if left else place < lengths[:, None]
        out["attention_mask"] = there.astype(np.int64)
        for name, values in self.targets.items():
            if isinstance(values, Ragged):
                out[name] = values.padded(rows, width, IGNORED, left)
            else:
                shift = width - lengths if left and name.endswith("_positions") else 0
                out[name] = values[rows] + shift if name.endswith("_positions") else values[rows]
        tensors = {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in out.items()}
        if self.states is not None:
            tensors["states"] = self._states(rows, width, self.states)
        return tensors

    def own(self, row: int, width: int) -> slice:
        """Where a row's pieces stand in a batch padded to ``width``."""
        length = int(self.lengths[row])
        return slice(width - length, width) if self.pad_left else slice(length)

    def _states(self, rows: np.ndarray, width: int, states: States) -> torch.Tensor:
        found = states(rows)
        if all(len(row) == width for row in found):
            return torch.from_numpy(np.stack(found, axis=1)).permute(2, 1, 0, 3)
        _, count, size = found[0].shape
        out = np.zeros((count, len(rows), width, size), dtype=np.float32)
        for i, row in enumerate(rows):
            out[:, i, self.own(row, width)] = found[i].swapaxes(0, 1)
        return torch.from_numpy(out)
