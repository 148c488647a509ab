"""Tables for people: Arrow rows in a terminal of 80 columns."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table


def frontier_table(front: pa.Table, metric_name: str) -> Table:
    """The frontier, sparse to dense for each fusion, as a rich table; with ± half of the mean's
    95 % interval where there are several seeds."""
    table = Table(
        title="Parameter-efficiency frontier: no trial is both smaller and better",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("fusion", no_wrap=True)
    table.add_column("method")
    for name in ("remaining", metric_name, "λ", "learning rate", "mask rate", "trial"):
        table.add_column(name, justify="right", no_wrap=name == metric_name)
    previous = None
    for row in front.to_pylist():
        group = (row["fusion"], row["method"].removesuffix("_movement"))
        if previous is not None and row["fusion"] != previous[0]:
            table.add_section()
        dense = row["method"] == "dense"
        wide = row.get("metric_interval")
        table.add_row(
            *(group if group != previous else ("", "")),
            f"{row['remaining']:.1%}",
            f"{row['metric']:.4f}" + (f" ±{wide:.3f}" if wide is not None else ""),
            "" if dense else f"{row['final_lambda']:.3g}",
            f"{row['learning_rate']:.1e}",
            "" if dense else f"{row['mask_rate']:.1e}",
            row["trial_id"][:6],
        )
        previous = group
    return table


def losses_table(losses: pa.Table) -> Table:
    """What dropping layers costs and saves, as a rich table (layer dropping, Tables 2 and 3)."""
    table = Table(title="Layers dropped, against the whole model", title_justify="left", box=None)
    for name in ("task", "encoder", "strategy"):
        table.add_column(name)
    names = ("drop", "metric", "loss", "parameters", "train", "infer")
    for name in names:
        table.add_column(name, justify="right")
    before = None
    for row in losses.to_pylist():
        group = (row["task"], _short(row["backbone"]))
        if before is not None and group != before:
            table.add_section()
        table.add_row(
            *(group if group != before else ("", "")),
            "whole" if row["strategy"] == "none" else row["strategy"],
            str(row["count"]),
            f"{row['metric']:.4f}",
            f"{row['loss']:+.2f}" if row["count"] else "",
            f"{row['parameters'] / 1e6:.2f} M",
            _number(row["train_speedup"], ".2f", "×"),
            _number(row["infer_speedup"], ".2f", "×"),
        )
        before = group
    return table


def counts_table(counts: pa.Table) -> Table:
    """Layers that tasks can spare, as a rich table (layer dropping, Table 4): the count, and in
    brackets the points lost on the other half of the dev set; a star where McNemar's p < 0.05."""
    table = Table(
        title="Layers to spare (lost on the other dev half)", title_justify="left", box=None
    )
    thresholds = sorted(set(counts["threshold"].to_pylist()))
    table.add_column("task")
    table.add_column("encoder")
    for threshold in thresholds:
        table.add_column(f"within {threshold:g}", justify="right")
    table.add_column("trainings", justify="right")
    lines: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in counts.to_pylist():
        lines.setdefault((row["task"], row["backbone"]), {})[row["threshold"]] = row
    for (task, backbone), cells in lines.items():
        any_row = next(iter(cells.values()))
        shown = [
            f"{r['count']} ({r['loss_second']:.2f}){'*' if r['significant'] else ''}"
            for r in (cells[t] for t in thresholds)
        ]
        spent = f"{any_row['trainings']} of {any_row['grid']}"
        table.add_row(task, _short(backbone), *shown, spent)
    return table


def remarks(counts: pa.Table, trials: pa.Table) -> list[str]:
    """What a reader of the counts should know, a line each."""
    rows, found = counts.to_pylist(), []
    if any(r["significant"] for r in rows):
        found.append("*: differs from the whole model on the other half, McNemar p < 0.05")
    for task, backbone in sorted({(r["task"], r["backbone"]) for r in rows if not r["monotone"]}):
        where = f"{task} on {_short(backbone)}"
        found.append(f"{where}: the loss does not rise with every layer; more seeds would tell")
    tried = {(r["task"], r["backbone"]) for r in trials.to_pylist()}
    for task, backbone in sorted(tried - {(r["task"], r["backbone"]) for r in rows}):
        where = f"{task} on {_short(backbone)}"
        found.append(f"{where}: the whole model did not complete, so there is no count")
    return found


def mixes_table(mixes: pa.Table, metric_name: str) -> Table:
    """Dropping and pruning at equal sizes, as a rich table; a star on the best of a size."""
    table = Table(title="Mixes of the same size", title_justify="left", box=None)
    for name in ("size", "dropped", "pruned to", "remaining", metric_name, "latency", "p", ""):
        table.add_column(name, justify="right")
    before = None
    for row in mixes.to_pylist():
        if before is not None and row["size"] != before:
            table.add_section()
        spread = f" ± {row['metric_sd']:.3f}" if row["metric_sd"] is not None else ""
        table.add_row(
            f"{row['size']:.1%}" if row["size"] != before else "",
            str(row["count"]),
            _number(row["target"], ".1%"),
            f"{row['remaining']:.1%}",
            f"{row['metric']:.4f}{spread}",
            _number(row["latency"] and 1000 * row["latency"], ".1f", " ms"),
            _number(row["p_value"], ".2f"),
            ("*" if row["best"] else "") + ("f" if row["on_frontier"] else ""),
        )
        before = row["size"]
    return table


def scores_table(scores: pa.Table) -> Table:
    """What scored strategies go by, a line a layer, as a rich table."""
    table = Table(title="Layers by their scores", title_justify="left", box=None)
    for name in ("task", "encoder", "layer", "variance", "aggregate", "contribution"):
        table.add_column(name, justify="left" if name in ("task", "encoder") else "right")
    before = None
    for row in scores.to_pylist():
        group = (row["task"], _short(row["backbone"]))
        table.add_row(
            *(group if group != before else ("", "")),
            str(row["layer"]),
            f"{row['variance']:.3e}",
            f"{row['aggregate']:.1f}",
            f"{row['contribution']:.4f}",
        )
        before = group
    return table


def _short(backbone: str) -> str:
    return Path(backbone).name


def any_table(rows: pa.Table) -> Table:
    """Whatever a query gave, a column each, as a rich table."""
    table = Table(box=None)
    for field in rows.schema:
        number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        table.add_column(field.name, justify="right" if number else "left")
    # By column: names may repeat, and rows as dicts would lose one of them.
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        cells = (f"{v:.6g}" if isinstance(v, float) else v for v in row)
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    return table


def answers(found: pa.Table, metric_name: str) -> list[str]:
    """What a search for a target says, a few lines for each fusion."""
    lines = []
    for row in found.to_pylist():
        head = f"{row['fusion']}: {metric_name} >= {row['target']:.4f} (dense {row['dense']:.4f})"
        if row.get("recipe") is None:
            lines.append(f"{head}: no pruned trial completed")
            continue
        seeds = "1 seed" if row["seeds"] == 1 else f"{row['seeds']} seeds"
        if row["met"]:
            lines.append(f"{head}: met with {row['remaining']:.1%} of the weights")
        else:
            gap = row["target"] - row["metric"]
            close = f"the closest is {gap:.4f} short" if gap > 0 else "met by some seeds only"
            lines.append(f"{head}: not met; {close}, with {row['remaining']:.1%} of the weights")
        sure = "how sure: more seeds would tell"
        if row["sure"] is not None and not math.isnan(row["sure"]):
            sure = f"{row['sure']:.0%} sure that its mean is there"
        lines += [
            f"  {metric_name} {row['metric']:.4f} over {seeds}, {row['seeds_met']} of them there; "
            f"{sure}",
            f"  λ {row['final_lambda']:.4g}, learning rate {row['learning_rate']:.2e}, "
            f"mask rate {row['mask_rate']:.2e}, trial {row['trial_id'][:6]}"
            + (" of an earlier study" if row["earlier"] else ""),
        ]
    return lines


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


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else format(value, form) + unit
