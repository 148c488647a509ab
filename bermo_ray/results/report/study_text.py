"""What a study's script says in words: its question, what it printed, and how it was started."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bermo_ray.results.report.blocks import DataTable

STUDY_TEXT_FILE = "report.json"  # in the study's folder, and an artifact of its run
_WIDTH = 100  # of what is neither text nor a table


@dataclass(frozen=True)
class StudyText:
    """What a report can't make from the trials alone.

    Attributes:
        question: The script's docstring.
        command: What to type for the same numbers.
        printed: Lines and tables, in their order.
    """

    question: str = ""
    command: str = ""
    printed: Sequence[str | DataTable] = ()

    @property
    def title(self) -> str:
        """The first line of the question."""
        return self.question.strip().partition("\n")[0]

    @property
    def paragraphs(self) -> list[str]:
        """What follows the first line; commands, which are indented, are left out."""
        parts = re.split(r"\n\s*\n", self.question.strip())[1:]
        return [" ".join(part.split()) for part in parts if not part.startswith(" ")]

    def to_json(self) -> str:
        """The text of :data:`STUDY_TEXT_FILE`."""
        printed = [item if isinstance(item, str) else item.to_dict() for item in self.printed]
        content = {"question": self.question, "command": self.command, "printed": printed}
        return json.dumps(content, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "StudyText":
        """The inverse of :meth:`to_json`."""
        content: Mapping[str, Any] = json.loads(text)
        printed = [
            item if isinstance(item, str) else DataTable.from_dict(item)
            for item in content["printed"]
        ]
        return cls(content["question"], content["command"], printed)


def copy_printed(thing: Any) -> str | DataTable:
    """What was printed on a rich console, without its look: a table, or text."""
    if isinstance(thing, Table):
        return _copy_table(thing)
    if isinstance(thing, str | Text):
        return _plain(thing)
    console = Console(file=io.StringIO(), width=_WIDTH)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()


def _copy_table(table: Table) -> DataTable:
    cells = [[_plain(cell) for cell in column.cells] for column in table.columns]
    return DataTable(
        columns=[" ".join(_plain(column.header).split()) for column in table.columns],
        rows=[list(row) for row in zip(*cells, strict=True)],
        is_number=[column.justify == "right" for column in table.columns],
        title=_plain(table.title or ""),
    )


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain
