"""What a study came to, for Python and notebooks: its trials, and the frontier among them."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group
from rich.table import Table

from bermo_ray.html import rich_to_html, to_html_image
from bermo_ray.results.figures import frontier_figure
from bermo_ray.results.frontier import GROUP, frontier, usable
from bermo_ray.results.text import frontier_table, trials_table


@dataclass(frozen=True, repr=False)
class Results:
    """The trials of a study, or of several: an Arrow table that a notebook shows.

    Whatever reads Arrow streams takes it as it is: ``pa.table(results)``,
    ``polars.from_arrow(results)``.

    Args:
        table: One row per trial, with :data:`bermo_ray.record.SCHEMA`, as ``load`` gives it.
    """

    table: pa.Table

    def frontier(self, by: Sequence[str] = GROUP) -> "Frontier":
        """The trials that no other beats in both size and metric, of each group
        (:func:`bermo_ray.results.frontier`).

        Args:
            by: The columns that make a group.
        """
        return Frontier(frontier(self.table, by), self.table)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        counts = Counter(self.table["status"].to_pylist())
        ends = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"Results({len(self)} trials: {ends})"

    def __rich__(self) -> Table:
        return trials_table(self.table)

    def _repr_html_(self) -> str:
        """For notebooks: a line for each trial."""
        return rich_to_html(trials_table(self.table))


@dataclass(frozen=True, repr=False)
class Frontier:
    """The efficient trials among others: what a notebook shows as a table and a figure.

    Args:
        table: Rows of ``trials``, by group, then from sparse to dense.
        trials: All of them.
    """

    table: pa.Table
    trials: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Frontier({len(self)} of {self.trials.num_rows} trials)"

    def __rich__(self) -> Group:
        return Group(*(frontier_table(front, metric) for front, _, metric in self._parts()))

    def _repr_html_(self) -> str:
        """For notebooks: for each task and encoder, its efficient trials and the figure."""
        parts = [
            rich_to_html(frontier_table(front, metric)) + _draw(trials, metric)
            for front, trials, metric in self._parts()
        ]
        return "".join(parts) or f"<p>None of {self.trials.num_rows} trials is on a frontier.</p>"

    def save_figure(self, file: Path | str) -> list[Path]:
        """Writes the figures as PNG, one for each task and encoder: of several, ``-2``, ``-3`` and
        so on go behind the name. Gives their files."""
        file, files = Path(file), []
        for number, (_, trials, metric) in enumerate(self._parts(), start=1):
            name = file.stem if number == 1 else f"{file.stem}-{number}"
            files.append(frontier_figure(trials, metric, file.with_name(f"{name}.png")))
        return files

    def _parts(self) -> Iterator[tuple[pa.Table, pa.Table, str]]:
        """For each task and encoder: its efficient trials, all of its trials, its metric's name."""
        keys = self.table.select(["task", "backbone", "metric_name"]).to_pylist()
        for key in {(k["task"], k["backbone"]): k for k in keys}.values():
            trials = usable(_select(self.trials, key))
            yield _select(self.table, key), trials, key["metric_name"] or "metric"


def _select(table: pa.Table, key: dict[str, Any]) -> pa.Table:
    return table.filter(
        pc.and_(pc.equal(table["task"], key["task"]), pc.equal(table["backbone"], key["backbone"]))
    )


def _draw(trials: pa.Table, metric_name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
        file = frontier_figure(trials, metric_name, Path(folder) / "frontier.png")
        return to_html_image(file.read_bytes(), f"{metric_name} by remaining encoder parameters")
