"""Tables for whoever asks: a person at a terminal, a pipe, or a program."""

import csv
import json
import math
import os
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bermo_ray.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table


_UNBOUNDED = 10_000  # columns


def show_table(
    rows: "pa.Table",
    view: "Callable[[], Table]",
    as_json: bool = False,
    parquet: Path | None = None,
    brief: "Callable[[], pa.Table] | None" = None,
) -> None:
    """Gives rows in the form that was asked for, else in the one that fits where they go: at a
    terminal a table that fits or scrolls, in a pipe tab-separated text, nothing of it cut.

    Args:
        rows: All there is to say, for programs.
        view: Makes the table that a person reads.
        as_json: A JSON list of objects on the standard output.
        parquet: A file to write instead.
        brief: Makes the rows for a pipe, if not all columns.
    """
    if parquet is not None:
        import pyarrow.parquet as pq

        write_complete(parquet, lambda file: pq.write_table(rows, file))
    elif as_json:
        print(json.dumps(_plain_rows(rows), ensure_ascii=False, indent=1))
    elif sys.stdout.isatty():
        _print_view(view())
    else:
        _print_tab_separated(rows if brief is None else brief())


def _plain_rows(rows: "pa.Table") -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in _objects(rows)]


def _objects(rows: "pa.Table") -> list[dict[str, Any]]:
    """Rows as objects; of columns of the same name the later ones are numbered."""
    names: list[str] = []
    for name in rows.column_names:
        count = rows.column_names[: len(names)].count(name)
        names.append(f"{name}_{count + 1}" if count else name)
    return rows.rename_columns(names).to_pylist(maps_as_pydicts="lossy")


def _plain(value: Any) -> Any:
    """A value as JSON has it: no number that is not finite, times in ISO format."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):  # as DuckDB gives sums of whole numbers
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    known = value is None or isinstance(value, str | int | float | bool)
    return value if known else value.isoformat() if hasattr(value, "isoformat") else str(value)


def _print_tab_separated(rows: "pa.Table") -> None:
    writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerow(rows.column_names)
    for row in _objects(rows):
        cells = (_plain(value) for value in row.values())
        writer.writerow([
            json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else cell
            for cell in cells
        ])  # fmt: skip


def _print_view(view: "Table") -> None:
    """A table as it is where it fits, with text folded if need be, else in the pager, which scrolls
    to the side."""
    from rich.console import Console

    console = Console(highlight=False)
    width = console.measure(view, options=console.options.update(width=_UNBOUNDED))
    if width.minimum <= console.width:
        console.print(view)
        return
    os.environ.setdefault("LESS", "-FRSX")  # lines are not folded, short ones not paged
    wide = Console(highlight=False, width=width.maximum, force_terminal=True)
    with wide.pager(styles=True):
        wide.print(view)


def write_complete(file: Path, write: Callable[[Path], Any]) -> None:
    """Writes a file under another name first, so that none is left half-written.

    Raises:
        UserError: it can't be written.
    """
    import pyarrow as pa

    partial_file = file.with_name(file.name + ".partial")
    try:
        write(partial_file)
        partial_file.replace(file)
    except (OSError, pa.ArrowException) as error:
        partial_file.unlink(missing_ok=True)
        raise UserError(f"parquet: {str(error).splitlines()[0]}") from None
