"""Rows of a user's own files: CSV, TSV, JSON lines, parquet, CoNLL, SQuAD JSON, plain text.

Every row keeps the name that a person finds it by: the line of a text file, else its number.
"""

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError, listed
from bermo_ray.tasks.mlm import read_text
from bermo_ray.tasks.ner import read_conll
from bermo_ray.tasks.sources import read_lines, read_parquet
from bermo_ray.tasks.squad import read_squad
from bermo_ray.tasks.task import to_plain_type


@dataclass(frozen=True)
class FileRows:
    """The rows of a file, column by column, not yet checked.

    Attributes:
        where: The file, or a dataset's name and split, for messages.
        columns: Values by column: of CSV all text, of other formats as they are.
        lines: The line at which each row ends; None where a file has no lines.
        metadata: Of the Arrow schema; has the names of classes that `datasets` wrote.
    """

    where: str
    columns: Mapping[str, "Sequence[Any] | pa.ChunkedArray"]
    lines: Sequence[int] | None = None
    metadata: dict[bytes, bytes] | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> pa.ChunkedArray:
        """A column as Arrow has it.

        Raises:
            UserError: there is none of that name, or its values are of several types.
        """
        if name not in self.columns:
            raise UserError(f"{self.where}: no column {name!r}; it has {listed([*self.columns])}")
        values = self.columns[name]
        if isinstance(values, pa.ChunkedArray):
            return to_plain_type(values)
        try:
            return pa.chunked_array([pa.array(values)])
        except pa.ArrowException as error:
            row = self._first_odd_row(values)
            raise self.error(
                name, row, f"{values[row]!r} is of another type than the rows before"
            ) from error

    def error(self, column: str, row: int, problem: str) -> UserError:
        """What to raise for a row that is wrong."""
        name = f"line {self.lines[row]}" if self.lines else f"row {row}"
        return UserError(f"{self.where}: column {column!r}, {name}: {problem}")

    @staticmethod
    def _first_odd_row(values: Sequence[Any]) -> int:
        """The first row up to which the values are no Arrow column: they are so from there on."""
        low, high = 0, len(values) - 1
        while low < high:
            middle = (low + high) // 2
            try:
                pa.array(values[: middle + 1])
                low = middle + 1
            except pa.ArrowException:
                high = middle
        return low


Read = Callable[[Path], FileRows]


def read_file(file: Path, kind: str | None = None) -> FileRows:
    """The rows of a file; its name's ending says how it is read.

    Args:
        file: What is read.
        kind: What is learned, where that is known: a ``.txt`` of tags is CoNLL's, of masked words
            running text.

    Raises:
        UserError: no such file, a format that is not read, nothing in it, or a line that is wrong.
    """
    if not file.is_file():
        raise UserError(f"no file {file}")
    read = _TEXT_READERS.get(kind or "") if file.suffix == ".txt" else READERS.get(file.suffix)
    if file.suffix == ".txt" and read is None:
        raise UserError(
            f"{file}: is it words with tags, or running text? Give `kind` tags or masked"
        )
    if read is None:
        raise UserError(f"{file}: its format is not read; give one of {listed([*READERS])}, .txt")
    rows = read(file)
    if not rows.count:
        raise UserError(f"{file}: no rows")
    return rows


def from_table(where: str, table: pa.Table) -> FileRows:
    """An Arrow table's rows."""
    columns = {name: table[name] for name in table.column_names}
    return FileRows(where, columns, metadata=table.schema.metadata)


def _read_csv(file: Path, delimiter: str = ",") -> FileRows:
    csv.field_size_limit(sys.maxsize)
    numbered = read_lines(file, keep_ends=True)
    reader = csv.reader((line for _, line in numbered), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        header = next(reader, [])
        for row in reader:
            if not row:  # an empty line
                continue
            if len(row) != len(header):
                raise UserError(
                    f"{file}: line {reader.line_num}: {len(row)} fields, the header has "
                    f"{len(header)}; texts with a {delimiter!r} or a line break need quotes"
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UserError(
            f"{file}: line {reader.line_num}: {error}; double the quotes within quotes"
        ) from None
    if len(set(header)) < len(header):
        raise UserError(f"{file}: line 1: a column is named twice: {listed(header)}")
    if not rows:
        raise UserError(f"{file}: no rows")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    return FileRows(str(file), columns, lines)


def _read_tsv(file: Path) -> FileRows:
    return _read_csv(file, "\t")


def _read_json_lines(file: Path) -> FileRows:
    records, lines = [], []
    for number, line in read_lines(file):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{file}: line {number}: not JSON: {error.msg}") from None
        if not isinstance(record, dict):
            raise UserError(f"{file}: line {number}: expected an object, one per line")
        records.append(record)
        lines.append(number)
    return FileRows(str(file), _to_columns(records), lines)


def _read_json(file: Path) -> FileRows:
    """SQuAD's format, or a list of records."""
    try:
        content = json.loads(file.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{file}: not JSON: {error}; name JSON lines .jsonl") from None
    if isinstance(content, dict):
        return from_table(str(file), read_squad(file))
    if isinstance(content, list) and all(isinstance(record, dict) for record in content):
        return FileRows(str(file), _to_columns(content))
    raise UserError(f"{file}: expected SQuAD's format, or a list of objects")


def _to_columns(records: Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _read_with(read: Callable[[Path], pa.Table]) -> Read:
    return lambda file: from_table(str(file), read(file))


# Ending of a file's name -> what reads it.
READERS: dict[str, Read] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_with(read_parquet),
    ".conll": _read_with(read_conll),
    ".bio": _read_with(read_conll),
}
# Kind -> what reads a file whose name ends in .txt, which may be anything.
_TEXT_READERS: dict[str, Read] = {
    "tags": _read_with(read_conll),
    "masked": _read_with(read_text),
}
