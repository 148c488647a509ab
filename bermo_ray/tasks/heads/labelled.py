"""What kinds with a label per row have in common, and kinds with a label per word piece."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F

from bermo_ray.tasks.encoded import IGNORED, EncodedRows
from bermo_ray.tasks.heads.base import (
    Collected,
    Columns,
    Gold,
    HeadKind,
    Logits,
    model_inputs,
    temperature_kl,
)

if TYPE_CHECKING:
    from bermo_ray.tasks.task import Task


class LabelledRows(HeadKind):
    """Kinds with one label per row of a text or of a pair of texts."""

    columns = ("text", "label")
    stock_class = "AutoModelForSequenceClassification"
    reads_one_token = True
    label_type: type[np.generic]
    """Of the encoded labels."""

    def encode_block(
        self, task: "Task", rows: pa.Table, first: int, tokenizer: Any, max_length: int
    ) -> Columns:
        pairs = rows["text_pair"].to_pylist() if task.pair else None
        coded = tokenizer(rows["text"].to_pylist(), pairs, truncation=True, max_length=max_length)
        labels = rows["label"].to_numpy().astype(self.label_type)
        numbers = np.arange(first, first + rows.num_rows)
        return model_inputs(coded) | {"labels": labels, "row": numbers}

    def collect(self, data: EncodedRows, predictions: list[Any]) -> Collected:
        labels = np.asarray(data.gold["labels"])
        return data.row_numbers.tolist(), predictions, labels.tolist()


class LabelledPieces(HeadKind):
    """Kinds with a label per word piece, :data:`IGNORED` where the piece does not count."""

    per_piece = True

    def loss(self, logits: Logits, gold: Gold) -> torch.Tensor:
        """Cross entropy of ``[b, s, c]`` against ``[b, s]``, a mean over labelled pieces."""
        labels = gold["labels"].flatten()
        total = F.cross_entropy(
            logits[0].flatten(0, -2), labels, ignore_index=IGNORED, reduction="sum"
        )
        return total / (labels != IGNORED).sum().clamp(min=1)  # rows without a label add nothing

    def best_classes(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[np.ndarray]:
        """The likeliest class of each piece, row by row, without padding."""
        best = logits[0].argmax(-1).cpu().numpy()  # [b, s]
        return [best[i, data.piece_slice(row, best.shape[1])] for i, row in enumerate(rows)]

    def is_right(self, predicted: list[Any], gold: list[Any]) -> list[list[bool]]:
        pairs = zip(predicted, gold, strict=True)
        return [(np.asarray(p) == np.asarray(g)).tolist() for p, g in pairs]

    def distillation_loss(
        self,
        student: Logits,
        teacher: Logits,
        gold: Gold,
        padding: torch.Tensor | None,
        temperature: float,
    ) -> torch.Tensor:
        counted = gold["labels"] != IGNORED  # [b, s]
        return temperature_kl(student[0], teacher[0], temperature, counted)
