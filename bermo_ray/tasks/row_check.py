"""Checks of a task's rows: every message names the file, the column at its source and the row."""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.tasks.sources import class_names


class RowCheck:
    """Finds the first row that is wrong and says where it is.

    Args:
        where: The rows' file, or their name on the hub.
        rows: The rows, under the task's names of columns.
        source_names: What a column is called at its source, where that is another name.
    """

    def __init__(self, where: str, rows: pa.Table, source_names: Mapping[str, str]) -> None:
        self.where, self.rows, self._source_names = where, rows, source_names

    def source_name(self, column: str) -> str:
        """What a column is called at its source."""
        return self._source_names.get(column, column)

    def class_names(self, column: str) -> tuple[str, ...]:
        """Names of the classes that the file gives for a column, in order; () where it has none."""
        return class_names(self.rows, self.source_name(column))

    def with_column(self, column: str, values: pa.ChunkedArray) -> pa.Table:
        """The rows with other values in that column."""
        return self.rows.set_column(self.rows.column_names.index(column), column, values)

    def error(self, column: str, row: int, problem: str) -> UserError:
        """What to raise for a row that is wrong."""
        return UserError(f"{self.where}: column {self.source_name(column)!r}, row {row}: {problem}")

    def refuse(self, column: str, wrong: pa.ChunkedArray, describe: Callable[[int], str]) -> None:
        """Raises for the first row that is true in ``wrong``; ``describe(row)`` says why."""
        if (row := pc.index(wrong, True).as_py()) >= 0:
            raise self.error(column, row, describe(row))

    def check_text(self, column: str) -> None:
        """Refuses rows without text, or with text that is not UTF-8."""
        self._check_strings(column, self.rows[column], lambda index: index)

    def check_words(self, column: str) -> None:
        """As :meth:`check_text`, for every word of a column of lists."""
        parents = pc.list_parent_indices(self.rows[column])
        words = pc.list_flatten(self.rows[column])
        self._check_strings(column, words, lambda index: parents[index].as_py())

    def _check_strings(
        self, column: str, values: pa.ChunkedArray, row_of: Callable[[int], int]
    ) -> None:
        if not pa.types.is_string(values.type):
            raise self.error(column, 0, f"expected text, found {values.type}")
        if (index := pc.index(pc.is_null(values), True).as_py()) >= 0:
            raise self.error(column, row_of(index), "no text")
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            index = next(i for i, v in enumerate(values.cast(pa.binary())) if not _is_utf8(v))
            raise self.error(column, row_of(index), "not UTF-8; convert the file") from None


def _is_utf8(value: pa.BinaryScalar) -> bool:
    try:
        value.as_py().decode()
    except UnicodeDecodeError:
        return False
    return True
