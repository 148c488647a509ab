"""What a task is: rows in one shape for each head kind, and the metric that judges it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.trial import Data

HeadKind = Literal["sequence", "regression", "token", "span", "masked"]
Split = Literal["train", "dev"]

# The columns that `load` gives, by head kind; `text_pair` is there too where the task has pairs.
COLUMNS: dict[HeadKind, tuple[str, ...]] = {
    "sequence": ("text", "label"),
    "regression": ("text", "label"),
    "token": ("words", "tags"),
    "span": ("text", "text_pair", "answer_text", "answer_start"),
    "masked": ("text",),
}


@dataclass(frozen=True)
class Task:
    """Something to learn; ``load(data, split, seed)`` gives Arrow rows with ``COLUMNS[head]``."""

    name: str
    head: HeadKind
    labels: tuple[str, ...]
    metric: str
    pair: bool
    load: Callable[[Data, Split, int], pa.Table] = field(repr=False, compare=False)
    problems: Callable[[Data], list[str]] = field(
        default=lambda _: [], repr=False, compare=False
    )  # what keeps the data from being read, a line each, without reading it all

    def table(self, data: Data, split: Split, seed: int) -> pa.Table:
        """The rows asked for, checked.

        Raises:
            UserError: a missing column, an empty split, or a label out of range, with its row.
        """
        rows = self.load(data, split, seed)
        where = f"task {self.name}, {split}"
        wanted = COLUMNS[self.head] + (("text_pair",) if self.pair else ())
        if missing := [c for c in wanted if c not in rows.column_names]:
            raise UserError(f"{where}: no column {missing[0]!r}; found {rows.column_names}")
        if rows.num_rows == 0:
            raise UserError(f"{where}: no rows")
        if self.head == "sequence":
            outside = pc.or_(
                pc.less(rows["label"], 0), pc.greater_equal(rows["label"], len(self.labels))
            )
            if (first := pc.index(outside, True).as_py()) >= 0:
                raise UserError(
                    f"{where}: row {first}: label {rows['label'][first].as_py()} is not one of "
                    f"0..{len(self.labels) - 1}"
                )
        return rows
