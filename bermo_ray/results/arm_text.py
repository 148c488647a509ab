"""Arms of a grid in a terminal of 80 columns: means beside each other, beside the paper's, and the
verdicts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table

from bermo_ray.intervals import CONFIDENCE
from bermo_ray.results.verdicts import Verdict, format_number


def arms_table(
    title: str,
    means: pa.Table,
    rows: Sequence[str],
    arm: str,
    published: Mapping[tuple[Any, ...], float] | None = None,
    scale: float = 100.0,
) -> Table:
    """Means over seeds as a rich table: a line for each group of ``rows``, a column for each arm, ±
    half of the mean's 95 % interval, and beside them the paper's numbers.

    Args:
        title: Says what the numbers are.
        means: From :func:`bermo_ray.results.means.mean_over_seeds`.
        rows: Columns that name a line.
        arm: The column whose values are the arms.
        published: The paper's numbers by (values of ``rows``..., arm), in the table's unit.
        scale: What means are multiplied by: 100 for points.
    """
    published = published or {}
    lines: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = {}
    for row in means.to_pylist():
        lines.setdefault(tuple(row[name] for name in rows), {})[row[arm]] = row
    arms = list(dict.fromkeys(row[arm] for row in means.to_pylist()))
    told = [name for name in arms if any((*line, name) in published for line in lines)]
    table = Table(title=title, box=None, title_justify="left", title_style="bold", padding=(0, 1))
    for name in rows:
        table.add_column(name.replace("_", " "))
    for name in [*map(str, arms), *(f"paper:\n{name}" for name in told)]:
        table.add_column(name, justify="right")
    for line, cells in lines.items():
        table.add_row(
            *(_name(part) for part in line),
            *(_mean_cell(cells.get(name), scale) for name in arms),
            *(_published_cell(published.get((*line, name))) for name in told),
        )
    return table


def _name(value: Any) -> str:
    return "none" if value is None else Path(value).name if isinstance(value, str) else f"{value:g}"


def _mean_cell(row: Mapping[str, Any] | None, scale: float) -> str:
    if row is None:
        return ""
    diverged = f" ({row['diverged']} div.)" if row["diverged"] else ""
    if row["mean"] is None:
        return f"none{diverged}"
    half_width = "" if row["interval"] is None else f" ±{scale * row['interval']:.2f}"
    return f"{scale * row['mean']:.2f}{half_width}{diverged}"


def _published_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def describe_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    """Each verdict in two lines: what came out here, and what the paper says."""
    lines = []
    for verdict in verdicts:
        number = ""
        if verdict.published is not None:
            number = f" ({format_number(verdict.published, verdict.unit)})"
        lines += [
            f"verdict  {verdict.sentence}",
            f"         {verdict.source}: {verdict.claim}{number}",
        ]
    return lines


def verdicts_overview(verdicts: Sequence[Verdict]) -> Table:
    """Verdicts of several studies, a line for each, as a rich table of 80 columns."""
    table = Table(box=None, padding=(0, 1), show_lines=False)
    for name in ("study", "claim", "paper", "ours (95 %)", "verdict"):
        table.add_column(name, justify="right" if name == "paper" else "left")
    previous = None
    for verdict in verdicts:
        study = "" if verdict.study == previous else verdict.study
        claim = f"{verdict.claim} ({verdict.source})"
        table.add_row(study, claim, *format_interval(verdict), verdict.outcome)
        previous = verdict.study
    return table


def format_interval(verdict: Verdict) -> tuple[str, str]:
    """The paper's number, and ours with its interval or why there is none."""
    unit = verdict.unit
    paper = "" if verdict.published is None else format_number(verdict.published, unit)
    if verdict.value is None:
        return paper, verdict.sentence.split("no answer: ")[-1]
    if verdict.low is None or verdict.high is None:
        return paper, f"{format_number(verdict.value, unit)} (no interval)"
    ends = " to ".join(format_number(end, "") for end in (verdict.low, verdict.high))
    if verdict.confidence != CONFIDENCE:
        ends = f"{100 * verdict.confidence:.3g} %: {ends}"
    return paper, f"{format_number(verdict.value, unit)} ({ends})"


def verdicts_markdown(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as a table in Markdown: claim, the paper's number, ours, interval, verdict, command;
    with what they are about where that is the same for all."""
    lines = [
        "| claim | paper | ours (95 % interval) | on | verdict | command |",
        "|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        paper, ours = format_interval(verdict)
        count = f", n = {verdict.count}" if verdict.count else ""
        cells = (
            f"{verdict.claim} ({verdict.source})", paper, f"{ours}{count}", verdict.where,
            f"**{verdict.outcome}**", f"`{verdict.command}`",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"
