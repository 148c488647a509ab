"""Tables for people: Arrow rows in a terminal of 80 columns."""

import pyarrow as pa
from rich.table import Table


def frontier_table(front: pa.Table, metric_name: str) -> Table:
    """The frontier, sparse to dense for each fusion, as a rich table."""
    table = Table(
        title="Parameter-efficiency frontier: no trial is both smaller and better",
        title_justify="left",
        box=None,
    )
    table.add_column("fusion")
    table.add_column("method")
    for name in ("remaining", metric_name, "λ", "learning rate", "mask rate", "trial"):
        table.add_column(name, justify="right")
    previous = None
    for row in front.to_pylist():
        group = (row["fusion"], row["method"])
        if previous is not None and row["fusion"] != previous[0]:
            table.add_section()
        dense = row["method"] == "dense"
        table.add_row(
            *(group if group != previous else ("", "")),
            f"{row['remaining']:.1%}",
            f"{row['metric']:.4f}",
            "" if dense else f"{row['final_lambda']:.3g}",
            f"{row['learning_rate']:.1e}",
            "" if dense else f"{row['mask_rate']:.1e}",
            row["trial_id"][:6],
        )
        previous = group
    return table


def trials_table(rows: pa.Table) -> Table:
    """Any trials of a study, a line each, as a rich table."""
    table = Table(box=None)
    for name, side in (
        ("trial", "left"), ("fusion", "left"), ("method", "left"), ("λ", "right"),
        ("remaining", "right"), ("metric", "right"), ("s", "right"), ("status", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for row in rows.to_pylist():
        table.add_row(
            row["trial_id"][:6],
            row["fusion"],
            row["method"],
            _number(row["final_lambda"], ".3g"),
            _number(row["remaining"], ".1%"),
            _number(row["metric"], ".4f"),
            _number(row["seconds"], ".0f"),
            row["status"] + (f": {row['reason']}" if row["reason"] else ""),
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
