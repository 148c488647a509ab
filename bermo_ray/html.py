"""Small pieces of HTML for notebooks."""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

_CELL = "padding:0.15em 0.7em"


def to_html_table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str = "",
    right: Iterable[int] = (),
) -> str:
    """A table; everything in it is text, whatever characters it has.

    >>> to_html_table(["a"], [["<b>"]]).count("&lt;b&gt;")
    1

    Args:
        header: A name per column.
        rows: A value per column; None is an empty cell.
        title: Above it.
        right: Indices of the columns whose values stand at the right.
    """
    sides = dict.fromkeys(right, "right")
    lines = [_row("th", header, sides), *(_row("td", row, sides) for row in rows)]
    caption = (
        f'<caption style="text-align:left;white-space:pre-line">{html.escape(title)}</caption>'
        if title
        else ""
    )
    return f"<table>{caption}<thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>"


def _row(tag: str, cells: Sequence[Any], sides: dict[int, str]) -> str:
    written = (
        f'<{tag} style="text-align:{sides.get(index, "left")};{_CELL}">'
        f"{'' if cell is None else html.escape(str(cell))}</{tag}>"
        for index, cell in enumerate(cells)
    )
    return f"<tr>{''.join(written)}</tr>"


def rich_to_html(table: Table) -> str:
    """A table made for a terminal as one for a notebook: the same cells, without their colours."""
    right = [i for i, column in enumerate(table.columns) if column.justify == "right"]
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    header = [_plain(column.header) for column in table.columns]
    title = "" if table.title is None else _plain(table.title)
    return to_html_table(header, zip(*columns, strict=True), title, right)


def _plain(cell: Any) -> str:
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)


def to_html_image(png: bytes, description: str) -> str:
    """A PNG within the page itself."""
    data = base64.b64encode(png).decode()
    text = html.escape(description, quote=True)
    return f'<img alt="{text}" style="max-width:42em" src="data:image/png;base64,{data}">'
