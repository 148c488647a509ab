"""What a task is: where its rows come from, their head kind, and the metric that judges it."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.tasks.heads import HeadKind
from bermo_ray.tasks.row_check import RowCheck
from bermo_ray.tasks.sources import MissingPartError, Rows, class_names
from bermo_ray.trial import Data

Split = Literal["train", "dev", "test"]


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
        name: What a trial calls it.
        head: The shape of its answers; its rows have ``head.columns``.
        labels: Its classes, in the order of their numbers; none for other kinds than classes.
        metric: What judges it.
        pair: Whether a row is two texts, so that it has a ``text_pair``.
        open_source: ``(data, part)`` to where the part's rows lie, unread.
        columns: What a column is called at its source, where that is another name.
        extra_metrics: Further metrics that are measured.
        dev: The part that is measured on.
        extra_dev_sets: Parts that are measured at the end, where they can be had.
        test: The test part, measured at the end where it can be had; None where there is none or
            its labels are hidden.
        labels_from_data: Whether the classes are those of the training rows.
        running_text: Whether all lines are one text that is cut into rows of full length.
    """

    name: str
    head: HeadKind
    labels: tuple[str, ...]
    metric: str
    pair: bool
    open_source: Callable[[Data, str], Rows] = field(repr=False, compare=False)
    columns: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    extra_metrics: tuple[str, ...] = ()
    dev: str = "validation"
    extra_dev_sets: tuple[str, ...] = ()
    test: str | None = None
    labels_from_data: bool = False
    running_text: bool = False

    @property
    def keeps_row_count(self) -> bool:
        """Whether each row gives exactly one encoded row."""
        return self.head.keeps_row_count and not self.running_text

    def part_of(self, split: Split) -> str:
        """What a split is called at its source.

        Raises:
            MissingPartError: the task has no labelled test part.
        """
        part = {"train": "train", "dev": self.dev, "test": self.test}[split]
        if part is None:
            raise MissingPartError(f"task {self.name}: no test part with labels")
        return part

    def find_problems(self, data: Data) -> list[str]:
        """What keeps the data from being found, one line each, without reading it."""
        problems: list[str] = []
        for part in ("train", self.dev):
            try:
                self.open_source(data, part)
            except UserError as error:
                problems += error.problems
        return problems

    def available_dev_sets(self, data: Data) -> list[str]:
        """Those of the extra dev sets that can be had."""
        parts = []
        for part in self.extra_dev_sets:
            with contextlib.suppress(UserError):
                self.open_source(data, part)
                parts.append(part)
        return parts

    def with_labels(self, data: Data) -> "Task":
        """The task with its classes, where they are not known before the data is seen."""
        if not self.labels_from_data or self.labels:
            return self
        rows = self._read_columns(self.open_source(data, self.part_of("train")))
        column = self.head.columns[-1]  # of rows with classes, the last has them
        names = class_names(rows, self.columns.get(column, column))
        return replace(self, labels=names or sort_labels(rows[column]))

    def read_rows(self, data: Data, part: str) -> pa.Table:
        """All rows of a part, checked.

        Raises:
            MissingPartError: the part can't be had, or has no rows.
            UserError: with file, column and row of what is wrong with them.
        """
        source = self.open_source(data, part)
        rows = self._read_columns(source)
        if rows.num_rows == 0:
            raise MissingPartError(f"{source.where}: no rows")
        check = RowCheck(source.where, rows, self.columns)
        for column in ("text", "text_pair"):
            if column in rows.column_names:
                check.check_text(column)
        return self.head.check(check, self.labels)

    def take_rows(self, data: Data, split: Split, seed: int) -> pa.Table:
        """The rows that a trial takes of a split, checked."""
        rows = self.read_rows(data, self.part_of(split))
        return rows.take(self.choose_rows(data, split, seed, rows.num_rows))

    def choose_rows(self, data: Data, split: Split, seed: int, count: int) -> np.ndarray:
        """Indices of those of a split's ``count`` rows that a trial takes.

        Of train, the first of a seeded shuffle; ``shots`` N takes N rows per class on average,
        drawn from all rows alike. Of dev, the first; of test, the first, as many as of dev.
        """
        if split == "train":
            size = _subset_size(self._train_rows(data, count), count)
            if size == count:
                return np.arange(count)
            return np.random.default_rng(seed).permutation(count)[:size]
        return np.arange(_subset_size(data.dev_rows, count))

    def _train_rows(self, data: Data, count: int) -> int | float | None:
        if data.shots is None:
            return data.train_rows
        wanted = data.shots * self.head.few_shot_classes(self.labels)
        if wanted > count:
            raise UserError(f"data.shots: {wanted} rows wanted, train has {count}")
        return wanted

    def _read_columns(self, source: Rows) -> pa.Table:
        """The rows of a source with the head's columns alone, under their names here."""
        rows = source.read()
        columns = list(self.head.columns)
        if self.pair and "text_pair" not in columns:
            columns.insert(1, "text_pair")
        names = [self.columns.get(column, column) for column in columns]
        if missing := [name for name in names if name not in rows.column_names]:
            raise UserError(f"{source.where}: no column {missing[0]!r}; found {rows.column_names}")
        table = pa.table([to_plain_type(rows[name]) for name in names], names=columns)
        return table.replace_schema_metadata(rows.schema.metadata)  # has the names of classes


def sort_labels(values: pa.ChunkedArray) -> tuple[str, ...]:
    """The different values, or values of lists, in the order of their numbers as classes: O of tags
    first, whole numbers by size, all else by the alphabet, B-X and I-X side by side."""
    is_list = pa.types.is_list(values.type)
    unique = pc.unique(pc.list_flatten(values) if is_list else values)
    return tuple(sorted(map(str, unique.to_pylist()), key=_label_rank))


def _label_rank(label: str) -> tuple[bool, float, str, str]:
    is_number = label.removeprefix("-").isdecimal()
    mark, dash, entity = label.partition("-")
    by_entity = (entity, mark) if dash and mark in ("B", "I") else (label, "")
    return (label != "O", float(label) if is_number else float("inf"), *by_entity)


def _subset_size(wanted: int | float | None, count: int) -> int:
    """Rows of ``count``: all, a number of them, or a share."""
    if wanted is None:
        return count
    return min(count, wanted if isinstance(wanted, int) else max(1, round(wanted * count)))


def to_plain_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as ``string`` and lists as ``list``, whatever the file's variants of them."""
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
        return column.cast(pa.string())
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        inner = kind.value_type
        inner = pa.string() if pa.types.is_large_string(inner) else inner
        return column.cast(pa.list_(inner))
    return column
