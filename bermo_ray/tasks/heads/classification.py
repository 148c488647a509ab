"""One of several classes per row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F

from bermo_ray.errors import unknown
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.heads.base import Gold, Logits, label_settings
from bermo_ray.tasks.heads.labelled import LabelledRows
from bermo_ray.tasks.row_check import RowCheck


class Classification(LabelledRows):
    """Logits ``[b, c]``; cross entropy against the class's number."""

    name = "sequence"
    label_type = np.int64

    def config_settings(self, labels: tuple[str, ...]) -> dict[str, Any]:
        return label_settings(labels)

    def check(self, check: RowCheck, labels: tuple[str, ...]) -> pa.Table:
        """Classes may be given by number or by name."""
        return check.with_column("label", _class_numbers(check, labels))

    def loss(self, logits: Logits, gold: Gold) -> torch.Tensor:
        return F.cross_entropy(logits[0], gold["labels"])

    def predict(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[int]:
        return logits[0].argmax(-1).tolist()

    def is_right(self, predicted: list[int], gold: list[int]) -> list[bool]:
        return [p == g for p, g in zip(predicted, gold, strict=True)]

    def row_classes(self, gold: list[int]) -> list[int]:
        return gold


def _class_numbers(check: RowCheck, labels: tuple[str, ...]) -> pa.ChunkedArray:
    values, names = check.rows["label"], check.class_names("label")
    check.refuse("label", pc.is_null(values), lambda _: "no label")
    if pa.types.is_integer(values.type):
        last = len(names or labels) - 1
        check.refuse(
            "label",
            pc.or_(pc.less(values, 0), pc.greater(values, last)),
            lambda row: f"label {values[row].as_py()} is not one of 0..{last}",
        )
        if not names or names == labels:
            return values.cast(pa.int64())
        values = pc.take(pa.array(names), values)  # by name: the file has an order of its own
    elif not pa.types.is_string(values.type):
        raise check.error("label", 0, f"expected classes, found {values.type}")
    numbers = pc.index_in(values, pa.array(labels, pa.string()))
    check.refuse(
        "label", pc.is_null(numbers), lambda row: unknown("label", values[row].as_py(), labels)
    )
    return numbers.cast(pa.int64())


CLASSIFICATION = Classification()
