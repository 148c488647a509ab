"""What a task is: rows in one shape for each head kind, and the metric that judges it."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError, unknown
from bermo_ray.tasks.source import Rows, class_names
from bermo_ray.trial import Data

HeadKind = Literal["sequence", "regression", "token", "span", "masked"]
Split = Literal["train", "dev"]
HALVES_SEED = 0  # the two halves of a dev set are the same in every trial

# The columns of a task's rows, by head kind; `text_pair` is there too where the task has pairs.
COLUMNS: dict[HeadKind, tuple[str, ...]] = {
    "sequence": ("text", "label"),
    "regression": ("text", "label"),
    "token": ("words", "tags"),
    "span": ("text", "text_pair", "answers", "answer_starts"),
    "masked": ("text",),
}


@dataclass(frozen=True)
class Task:
    """Something to learn. ``open(data, part)`` says where a part's rows lie; once read, they have
    ``COLUMNS[head]``, under the names that ``columns`` gives them at their source."""

    name: str
    head: HeadKind
    labels: tuple[str, ...]
    metric: str
    pair: bool
    open: Callable[[Data, str], Rows] = field(repr=False, compare=False)
    columns: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    also: tuple[str, ...] = ()  # further metrics
    dev: str = "validation"  # the part that is measured on
    further: tuple[str, ...] = ()  # dev sets that are measured at the end, where they can be had
    open_labels: bool = False  # the classes are those of the training rows
    grouped: bool = False  # masked: lines are one text, cut into rows of full length

    def part(self, split: Split) -> str:
        """The name of a split at its source."""
        return "train" if split == "train" else self.dev

    def problems(self, data: Data) -> list[str]:
        """What keeps the data from being found, a line each, without reading it."""
        found: list[str] = []
        for split in ("train", self.dev):
            try:
                self.open(data, split)
            except UserError as error:
                found += error.problems
        return found

    def further_parts(self, data: Data) -> list[str]:
        """The other dev sets that can be had."""
        found = []
        for part in self.further:
            with contextlib.suppress(UserError):
                self.open(data, part)
                found.append(part)
        return found

    def resolved(self, data: Data) -> "Task":
        """The task with its classes, where they are not known before the data is seen."""
        if not self.open_labels or self.labels:
            return self
        found = self._read(self.open(data, "train"))
        names = class_names(found, self.columns.get("label", "label"))
        if not names:
            names = tuple(map(str, pc.unique(found["label"]).to_pylist()))
            names = tuple(sorted(names, key=lambda n: (len(n), n) if n.isdigit() else (0, n)))
        return replace(self, labels=names)

    def rows(self, data: Data, part: str) -> pa.Table:
        """All rows of a part, checked.

        Raises:
            UserError: with file, column and row of what is wrong with them.
        """
        place = self.open(data, part)
        rows = self._read(place)
        if rows.num_rows == 0:
            raise UserError(f"{place.where}: no rows")
        check = _Check(place.where, rows, self.columns)
        for column in ("text", "text_pair"):
            if column in rows.column_names:
                check.text(column)
        if self.head == "sequence":
            ids = check.classes("label", self.labels, class_names(rows, check.source("label")))
            rows = rows.set_column(rows.column_names.index("label"), "label", ids)
        elif self.head == "regression":
            numbers = check.numbers("label")
            rows = rows.set_column(rows.column_names.index("label"), "label", numbers)
        elif self.head == "token":
            names = class_names(rows, check.source("tags"))
            ids = check.tags("words", "tags", self.labels, names)
            rows = rows.set_column(rows.column_names.index("tags"), "tags", ids)
        elif self.head == "span":
            check.answers()
        return rows

    def _read(self, place: Rows) -> pa.Table:
        """The rows with the head's columns alone."""
        rows = place.read()
        wanted = list(COLUMNS[self.head])
        if self.pair and "text_pair" not in wanted:
            wanted.insert(1, "text_pair")
        names = [self.columns.get(column, column) for column in wanted]
        if missing := [name for name in names if name not in rows.column_names]:
            raise UserError(f"{place.where}: no column {missing[0]!r}; found {rows.column_names}")
        kept = pa.table([_plain(rows[name]) for name in names], names=wanted)
        return kept.replace_schema_metadata(rows.schema.metadata)  # names of classes are there

    def chosen(self, data: Data, split: Split, seed: int, count: int) -> np.ndarray:
        """Which of a split's ``count`` rows a trial takes: all of them, a number, or a share.

        Of train, the first of a seeded shuffle; ``shots`` N takes N rows a class on average, drawn
        from all rows alike. Of dev, the first; halves of it are the same for every seed.
        """
        if split == "train":
            wanted = data.train_rows
            if data.shots is not None:
                wanted = data.shots * max(1, len(self.labels))
                if wanted > count:
                    raise UserError(f"data.shots: {wanted} rows wanted, train has {count}")
            size = _size(wanted, count)
            every = np.arange(count)
            return np.random.default_rng(seed).permutation(count)[:size] if size < count else every
        rows = np.arange(count)
        if data.dev_half is not None:
            rows = halves(count)[data.dev_half == "second"]
        return rows[: _size(data.dev_rows, len(rows))]

    def table(self, data: Data, split: Split, seed: int) -> pa.Table:
        """The rows that a trial takes, checked."""
        rows = self.rows(data, self.part(split))
        return rows.take(self.chosen(data, split, seed, rows.num_rows))


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of so many rows, the same for every seed, each rising (methods §3)."""
    order = np.random.default_rng(HALVES_SEED).permutation(count)
    middle = (count + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def _size(wanted: int | float | None, count: int) -> int:
    if wanted is None:
        return count
    return min(count, wanted if isinstance(wanted, int) else max(1, round(wanted * count)))


class _Check:
    """Finds the first row that is wrong and says where it is."""

    def __init__(self, where: str, rows: pa.Table, columns: Mapping[str, str]) -> None:
        self.where, self.rows, self.columns = where, rows, columns

    def source(self, column: str) -> str:
        return self.columns.get(column, column)

    def _fail(self, column: str, row: int, what: str) -> UserError:
        return UserError(f"{self.where}: column {self.source(column)!r}, row {row}: {what}")

    def _first(self, column: str, wrong: pa.ChunkedArray, what: Callable[[int], str]) -> None:
        if (row := pc.index(wrong, True).as_py()) >= 0:
            raise self._fail(column, row, what(row))

    def text(self, column: str, parents: pa.Array | None = None) -> None:
        """Text in every row; of a column of lists, in every word."""
        values = self.rows[column] if parents is None else pc.list_flatten(self.rows[column])
        row_of = (lambda i: i) if parents is None else (lambda i: parents[i].as_py())
        if not pa.types.is_string(values.type):
            raise self._fail(column, 0, f"expected text, found {values.type}")
        if (place := pc.index(pc.is_null(values), True).as_py()) >= 0:
            raise self._fail(column, row_of(place), "no text")
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            place = next(i for i, t in enumerate(values.cast(pa.binary())) if not _is_utf8(t))
            raise self._fail(column, row_of(place), "not UTF-8; convert the file") from None

    def classes(
        self, column: str, labels: tuple[str, ...], names: tuple[str, ...]
    ) -> pa.ChunkedArray:
        """Class numbers in the order of ``labels``, from numbers or names."""
        values = self.rows[column]
        self._first(column, pc.is_null(values), lambda _: "no label")
        if pa.types.is_integer(values.type):
            last = len(names or labels) - 1
            wrong = pc.or_(pc.less(values, 0), pc.greater(values, last))
            self._first(column, wrong, lambda r: f"label {values[r].as_py()} is not one of 0..{last}")  # fmt: skip # noqa: E501
            if not names or names == labels:
                return values.cast(pa.int64())
            values = pc.take(pa.array(names), values)  # by name: the file has an order of its own
        elif not pa.types.is_string(values.type):
            raise self._fail(column, 0, f"expected classes, found {values.type}")
        ids = pc.index_in(values, pa.array(labels, pa.string()))
        self._first(column, pc.is_null(ids), lambda r: unknown("label", values[r].as_py(), labels))
        return ids.cast(pa.int64())

    def numbers(self, column: str) -> pa.ChunkedArray:
        values = self.rows[column]
        if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            raise self._fail(column, 0, f"expected numbers, found {values.type}")
        wrong = pc.or_(pc.is_null(values, nan_is_null=True), pc.is_inf(values.cast(pa.float64())))
        self._first(column, wrong, lambda r: f"{values[r].as_py()} is no number to learn")
        return values.cast(pa.float32())

    def tags(
        self, words: str, column: str, labels: tuple[str, ...], names: tuple[str, ...]
    ) -> pa.ChunkedArray:
        """Tag numbers in the order of ``labels``, a list a row."""
        values = self.rows[column]
        for name in (words, column):
            if not pa.types.is_list(self.rows[name].type):
                raise self._fail(name, 0, f"expected lists, found {self.rows[name].type}")
        lengths = [pc.list_value_length(self.rows[name]) for name in (words, column)]
        off = pc.fill_null(pc.not_equal(*lengths), True)
        self._first(column, off, lambda r: f"{lengths[0][r]} words but {lengths[1][r]} tags")
        self._first(words, pc.equal(lengths[0], 0), lambda _: "no words")
        flat, rows = pc.list_flatten(values), pc.list_parent_indices(values)
        self.text(words, rows)
        if pa.types.is_integer(flat.type):
            order = names or labels
            outside = pc.or_(pc.less(flat, 0), pc.greater_equal(flat, len(order)))
            known = pc.if_else(outside, pa.scalar(None, flat.type), flat)
            ids = pc.index_in(pc.take(pa.array(order), known), pa.array(labels))
        else:
            ids = pc.index_in(flat.cast(pa.string()), pa.array(labels))
        if (place := pc.index(pc.is_null(ids), True).as_py()) >= 0:
            tag, row = flat[place].as_py(), rows[place].as_py()
            raise self._fail(column, row, f"tag {tag!r} is not one of {', '.join(labels)}")
        places = np.concatenate([[0], np.cumsum(lengths[0].to_numpy())]).astype(np.int32)
        found = ids.cast(pa.int64())
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        return pa.chunked_array([pa.ListArray.from_arrays(places, found)])

    def answers(self) -> None:
        """Every answer stands in its context where the row says."""
        columns = (self.rows[c].to_pylist() for c in ("text_pair", "answers", "answer_starts"))
        for row, (context, texts, starts) in enumerate(zip(*columns, strict=True)):
            if not texts or not starts or len(texts) != len(starts):
                found = f"{len(texts or [])} answers and {len(starts or [])} places"
                raise self._fail("answers", row, found)
            for text, start in zip(texts, starts, strict=True):
                if not text or start is None or start < 0:
                    raise self._fail("answers", row, f"{text!r} at {start} is no answer")
                if context[start : start + len(text)] != text:
                    raise self._fail("answers", row, f"{text!r} is not at {start} in its context")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
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


def _is_utf8(value: pa.BinaryScalar) -> bool:
    try:
        value.as_py().decode()
    except UnicodeDecodeError:
        return False
    return True
