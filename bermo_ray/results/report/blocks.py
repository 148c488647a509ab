"""What a page is made of: sections of blocks, from top to bottom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Link:
    """Text that leads to another page."""

    text: str
    url: str


Cell = str | Link


@dataclass(frozen=True)
class Paragraphs:
    """Lines of text, each a paragraph."""

    lines: Sequence[str]
    kind = "paragraphs"


@dataclass(frozen=True)
class Commands:
    """Lines to type into a shell."""

    lines: Sequence[str]
    kind = "commands"


@dataclass(frozen=True)
class DataTable:
    """A table of text.

    Attributes:
        columns: The heads.
        rows: Cells, as many in each row as there are columns.
        is_number: Of each column whether it is set to the right.
        title: Above the table.
        summary: Where given, the table is folded away behind this line.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    is_number: Sequence[bool] = ()
    title: str = ""
    summary: str = ""
    kind = "table"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, of a table without links."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "is_number": list(self.is_number),
            "rows": [list(row) for row in self.rows],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DataTable":
        """The inverse of :meth:`to_dict`."""
        return cls(**values)


@dataclass(frozen=True)
class Verdicts:
    """What came of claims, as cards: outcome, sentence, and what the paper says."""

    cards: Sequence[Mapping[str, str]]
    kind = "verdicts"


@dataclass(frozen=True)
class Point:
    """A point of a drawing that tells of itself when pointed at, and leads to a page."""

    text: str
    url: str


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption.

    Attributes:
        name: File name without its ending.
        caption: Below it; also what a screen reader says.
        figure: What is drawn; None where ``svg`` is given.
        svg: The text of an SVG file that was drawn earlier.
        points: By the address that a point of the figure carries.
    """

    name: str
    caption: str
    figure: "Figure | None" = None
    svg: str = ""
    points: Mapping[str, Point] = field(default_factory=dict)
    kind = "drawing"


Block = Paragraphs | Commands | DataTable | Verdicts | Drawing


@dataclass(frozen=True)
class Section:
    """Blocks below a title; one without blocks is left out."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """All of a report."""

    title: str
    subtitle: str
    sections: Sequence[Section]

    @property
    def drawings(self) -> list[Drawing]:
        """All figures, in their order."""
        return [b for s in self.sections for b in s.blocks if isinstance(b, Drawing)]
