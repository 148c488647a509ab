"""Hidden word pieces of a text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bermo_ray.tasks.encoded import IGNORED, EncodedRows
from bermo_ray.tasks.heads.base import Collected, Columns, Logits, model_inputs
from bermo_ray.tasks.heads.labelled import LabelledPieces

if TYPE_CHECKING:
    from bermo_ray.tasks.task import Task

MASKED_SHARE = 0.15  # of a row's pieces


class Masked(LabelledPieces):
    """Logits ``[b, s, c]`` with c the vocabulary's size; only hidden pieces have a label."""

    name = "masked"
    columns = ("text",)
    stock_class = "AutoModelForMaskedLM"

    def encode(self, task: "Task", rows: pa.Table, tokenizer: Any, max_length: int) -> Columns:
        """Pieces are hidden last, by the numbers of the encoded rows."""
        return _hide_pieces(super().encode(task, rows, tokenizer, max_length), tokenizer)

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

    def teacher_width(self, labels: tuple[str, ...], vocabulary_size: int) -> int:
        return vocabulary_size


def _hide_pieces(columns: Columns, tokenizer: Any) -> Columns:
    """15 % of the pieces become [MASK] and are the gold; the choice is fixed by the row's
    number, so that a metric measured twice is the same."""
    special = list(tokenizer.all_special_ids)
    inputs, labels = [], []
    for row, pieces in enumerate(columns["input_ids"]):
        shown = np.array(pieces)
        plain = np.flatnonzero(~np.isin(shown, special))
        count = max(1, round(MASKED_SHARE * len(plain)))
        hidden = np.random.default_rng(row).permutation(plain)[:count]
        row_labels = np.full(len(shown), IGNORED)
        row_labels[hidden] = shown[hidden]
        shown[hidden] = tokenizer.mask_token_id
        inputs.append(shown)
        labels.append(row_labels)
    return columns | {"input_ids": inputs, "labels": labels, "row": np.arange(len(inputs))}


MASKED = Masked()
