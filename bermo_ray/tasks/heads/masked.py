"""Hidden word pieces of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bermo_ray.tasks.encoded import IGNORED, EncodedRows
from bermo_ray.tasks.heads.base import Collected, Columns, Logits, model_inputs
from bermo_ray.tasks.heads.labelled import LabelledPieces

if TYPE_CHECKING:
    from bermo_ray.tasks.task import Task

HIDDEN_SHARE = 0.15  # of a row's pieces
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the hidden pieces; the others are shown as they are


@dataclass(frozen=True)
class PieceHider:
    """Hides pieces of rows as BERT's pretraining does (docs/methods.md §2, Masked words).

    Attributes:
        mask_id: The piece ``[MASK]``.
        is_plain: By a piece's id, whether it may be hidden: no special piece may, padding neither.
        plain_ids: Pieces that a random one is drawn from: the vocabulary without special ones.
    """

    mask_id: int
    is_plain: np.ndarray
    plain_ids: np.ndarray

    @classmethod
    def of(cls, tokenizer: Any) -> "PieceHider":
        """By a tokenizer's vocabulary."""
        ids = list(tokenizer.get_vocab().values())
        plain_ids = np.setdiff1d(ids, tokenizer.all_special_ids)
        is_plain = np.zeros(max(ids) + 1, dtype=bool)
        is_plain[plain_ids] = True
        return cls(tokenizer.mask_token_id, is_plain, plain_ids)

    def hide(self, pieces: np.ndarray, seed: int | list[int]) -> tuple[np.ndarray, np.ndarray]:
        """What is shown of a row's ``pieces`` ``[s]``, and its labels ``[s]``: the pieces that are
        hidden, :data:`IGNORED` elsewhere. Padding does not change what is drawn."""
        random = np.random.default_rng(seed)
        plain = np.flatnonzero(self.is_plain[pieces])
        hidden = random.permutation(plain)[: max(1, round(HIDDEN_SHARE * len(plain)))]
        chance = random.random(len(hidden))
        words = self.plain_ids[random.integers(len(self.plain_ids), size=len(hidden))]
        labels = np.full(len(pieces), IGNORED)
        labels[hidden] = pieces[hidden]
        shown = pieces.copy()
        is_changed = chance < MASK_SHARE + RANDOM_SHARE
        shown[hidden[is_changed]] = words[is_changed]
        shown[hidden[chance < MASK_SHARE]] = self.mask_id
        return shown, labels

    def __call__(
        self, batch: dict[str, np.ndarray], row_numbers: np.ndarray, draw: tuple[int, int]
    ) -> dict[str, np.ndarray]:
        """Pieces and labels ``[b, s]`` of a batch whose rows are hidden by (seed, epoch, row): the
        same in a resumed run, and with any number of workers."""
        labels = batch["labels"]
        pieces = np.where(labels == IGNORED, batch["input_ids"], labels)  # nothing hidden
        # From 1, because numpy gives [a, b] and [a, b, 0] the same numbers, and batches have those.
        seeds = [[*draw, int(number) + 1] for number in row_numbers]
        rows = [self.hide(row, seed) for row, seed in zip(pieces, seeds, strict=True)]
        shown, labels = (np.stack(side) for side in zip(*rows, strict=True))
        return {"input_ids": shown, "labels": labels}


class Masked(LabelledPieces):
    """Logits ``[b, s, c]`` with c the vocabulary's size; only hidden pieces have a label."""

    name = "masked"
    columns = ("text",)
    stock_class = "AutoModelForMaskedLM"
    redraws_gold = True

    def encode(self, task: "Task", rows: pa.Table, tokenizer: Any, max_length: int) -> Columns:
        """Pieces are hidden last, by the numbers of the encoded rows, so that a metric measured
        twice is the same. Training hides others: see :meth:`make_redraw`."""
        columns = super().encode(task, rows, tokenizer, max_length)
        hider = PieceHider.of(tokenizer)
        hidden = [hider.hide(np.array(row), i) for i, row in enumerate(columns["input_ids"])]
        shown, labels = ([row[side] for row in hidden] for side in (0, 1))
        return columns | {"input_ids": shown, "labels": labels, "row": np.arange(len(shown))}

    def make_redraw(self, tokenizer: Any) -> PieceHider:
        return PieceHider.of(tokenizer)

    def encode_block(
        self, task: "Task", rows: pa.Table, first: int, tokenizer: Any, max_length: int
    ) -> Columns:
        """A row per line; running text is cut into rows of full length, and the rest left out."""
        lines = rows["text"].to_pylist()
        if not task.running_text:
            return model_inputs(tokenizer(lines, truncation=True, max_length=max_length))
        stripped = (line.strip() for line in lines)
        text = " ".join(line for line in stripped if line)
        coded = tokenizer(
            [text], truncation=True, max_length=max_length, return_overflowing_tokens=True
        )
        full = [i for i, pieces in enumerate(coded["input_ids"]) if len(pieces) == max_length]
        return {name: [rows[i] for i in full] for name, rows in model_inputs(coded).items()}

    def predict(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[np.ndarray]:
        return self.best_classes(data, rows, logits)

    def collect(self, data: EncodedRows, predictions: list[Any]) -> Collected:
        """Of each row, the hidden pieces."""
        labels = list(data.gold["labels"])
        hidden = [row != IGNORED for row in labels]
        predicted, gold = (
            [row[kept] for row, kept in zip(side, hidden, strict=True)]
            for side in (predictions, labels)
        )
        return data.row_numbers.tolist(), predicted, gold


MASKED = Masked()
