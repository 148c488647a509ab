"""One number per row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F

from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.heads.base import Gold, Logits
from bermo_ray.tasks.heads.labelled import LabelledRows
from bermo_ray.tasks.row_check import RowCheck


class Regression(LabelledRows):
    """Logits ``[b, 1]``; squared error against the number."""

    name = "regression"
    label_type = np.float32

    def config_settings(self, labels: tuple[str, ...]) -> dict[str, Any]:
        return {"num_labels": 1}

    def check(self, check: RowCheck, labels: tuple[str, ...]) -> pa.Table:
        values = check.rows["label"]
        if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            raise check.error("label", 0, f"expected numbers, found {values.type}")
        wrong = pc.or_(pc.is_null(values, nan_is_null=True), pc.is_inf(values.cast(pa.float64())))
        check.refuse("label", wrong, lambda row: f"{values[row].as_py()} is no number to learn")
        return check.with_column("label", values.cast(pa.float32()))

    def loss(self, logits: Logits, gold: Gold) -> torch.Tensor:
        return F.mse_loss(logits[0].squeeze(-1), gold["labels"].float())

    def predict(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[float]:
        return logits[0].squeeze(-1).tolist()

    def is_right(self, predicted: list[float], gold: list[float]) -> None:
        return None

    def teacher_width(self, labels: tuple[str, ...]) -> int:
        return 1

    def distillation_loss(
        self,
        student: Logits,
        teacher: Logits,
        gold: Gold,
        padding: torch.Tensor | None,
        temperature: float,
    ) -> torch.Tensor:
        """Squared difference; a number has no temperature."""
        return F.mse_loss(student[0], teacher[0])


REGRESSION = Regression()
