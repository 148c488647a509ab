"""Trials in words: what a point tells, what ended badly, and the table of all."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from bermo_ray.record import Status
from bermo_ray.results.report.blocks import Cell, DataTable, Link, Point, Section
from bermo_ray.results.report.record import StudyRecord

_ID_DIGITS = 6  # of a trial's id, as in the tables that a study prints
_MOST_FAILURES = 50
# Head, column of the results, format; all but the first two are numbers.
_COLUMNS = (
    ("λ", "multiplier", ".3g"),
    ("learning rate", "learning_rate", ".1e"),
    ("score rate", "score_learning_rate", ".1e"),
    ("seed", "seed", "d"),
    ("layers dropped", "layers_dropped", "d"),
    ("remaining", "remaining", ".1%"),
    ("metric", "metric_reported", ".4f"),
    ("seconds", "seconds", ".0f"),
)
_OF_PRUNING = ("multiplier", "score_learning_rate")  # which dense trials do not use


def run_address(row: Mapping[str, Any], ui_url: str) -> str:
    """The page of a trial's run in the MLflow UI.

    Args:
        row: Of the results.
        ui_url: Where `bermo-ray ui` serves, such as ``http://127.0.0.1:5000``.
    """
    return f"{ui_url.rstrip('/')}/#/runs/{row['run_id']}"


def describe_trial(row: Mapping[str, Any]) -> str:
    """What a reader wants to know of a trial, in a few lines."""
    lines = [f"trial {row['trial_id'][:_ID_DIGITS]}: {row['fusion']}, {row['method']}"]
    for head, column, form in _COLUMNS:
        if _is_told(row, column) and (column != "layers_dropped" or row[column]):
            head = (row["metric_name"] or head) if column == "metric_reported" else head
            lines.append(f"{head} {row[column]:{form}}")
    return "\n".join(lines)


def link_points(
    rows: Iterable[Mapping[str, Any]], ui_url: str
) -> tuple[dict[str, str], dict[str, Point]]:
    """For a figure whose points are trials: the address that each carries, by ``run_id``, and what
    it tells and leads to, by that address."""
    addresses, points = {}, {}
    for row in rows:
        address = addresses[row["run_id"]] = f"trial:{row['run_id']}"
        points[address] = Point(describe_trial(row), run_address(row, ui_url))
    return addresses, points


def _is_told(row: Mapping[str, Any], column: str) -> bool:
    is_unused = row["method"] == "dense" and column in _OF_PRUNING
    return row[column] is not None and not is_unused


def count_statuses(table: pa.Table) -> str:
    """``14 completed, 2 diverged``."""
    counts = Counter(table["status"].to_pylist())
    ordered = [(str(s), counts[str(s)]) for s in (Status.COMPLETED, *Status) if counts[str(s)]]
    return ", ".join(f"{count} {status}" for status, count in dict(ordered).items())


def failures_section(record: StudyRecord, ui_url: str) -> Section:
    """The trials that did not complete, and why."""
    rows = [r for r in record.table.to_pylist() if r["status"] != Status.COMPLETED]
    if not rows:
        return Section("Trials that did not complete", [])
    cells = [
        (
            _link(row, ui_url), row["task"], row["fusion"], row["method"], str(row["seed"]),
            row["status"], row["reason"] or "",
        )
        for row in rows[:_MOST_FAILURES]
    ]  # fmt: skip
    left_out = len(rows) - len(cells)
    title = f"The first {len(cells)}; {left_out} more are among all trials" if left_out else ""
    heads = ("trial", "task", "fusion", "method", "seed", "how it ended", "why")
    is_number = tuple(head == "seed" for head in heads)
    table = DataTable(heads, cells, is_number, title)
    return Section("Trials that did not complete", [table])


def trials_section(record: StudyRecord, ui_url: str) -> Section:
    """All trials, folded away; columns that no trial has a value for are left out."""
    rows = record.table.to_pylist()
    columns = [c for c in _COLUMNS if any(_is_told(row, c[1]) for row in rows)]
    heads = ["trial", "task", "fusion", "method", *(head for head, _, _ in columns), "status"]
    cells: list[list[Cell]] = []
    for row in rows:
        numbers = [
            format(row[column], form) if _is_told(row, column) else ""
            for _, column, form in columns
        ]
        words = (row["task"], row["fusion"], row["method"])
        cells.append([_link(row, ui_url), *words, *numbers, row["status"]])
    is_number = [4 <= index < len(heads) - 1 for index in range(len(heads))]
    summary = f"{len(rows)} trials: {count_statuses(record.table)}"
    return Section("All trials", [DataTable(heads, cells, is_number, summary=summary)])


def _link(row: Mapping[str, Any], ui_url: str) -> Link:
    return Link(row["trial_id"][:_ID_DIGITS], run_address(row, ui_url))
