"""Tables for people: Arrow rows in a terminal of 80 columns."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from rich.table import Table

from bermo_ray.record import Status
from bermo_ray.search.layer_count_search import is_within

Justify = Literal["left", "right"]


def _table(title: str | None, columns: Sequence[str], text_columns: int = 0, **look: Any) -> Table:
    """A table without rules, the first ``text_columns`` to the left, numbers to the right."""
    table = Table(title=title, title_justify="left", box=None, **look)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < text_columns else "right")
    return table


def _encoder(backbone: str) -> str:
    return Path(backbone).name


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else format(value, form) + unit


def frontier_table(front: pa.Table, metric_name: str) -> Table:
    """The frontier, sparse to dense for each fusion, as a rich table; with ± half of the mean's
    95 % interval where there are several seeds."""
    names = ("remaining", metric_name, "λ", "learning rate", "score rate", "trial")
    title = "Parameter-efficiency frontier: no trial is both smaller and better"
    table = _table(title, ("fusion", "method", *names), text_columns=2, pad_edge=False)
    for column in (table.columns[0], table.columns[3]):  # fusion and the metric with its ±
        column.no_wrap = True
    previous = None
    for row in front.to_pylist():
        group = (row["fusion"], row["method"].removesuffix("_movement"))
        if previous is not None and row["fusion"] != previous[0]:
            table.add_section()
        dense = row["method"] == "dense"
        table.add_row(
            *(group if group != previous else ("", "")),
            f"{row['remaining']:.1%}",
            f"{row['metric']:.4f}" + _plus_minus(row.get("metric_interval")),
            "" if dense else _number(row["multiplier"], ".3g"),
            f"{row['learning_rate']:.1e}",
            "" if dense else f"{row['score_learning_rate']:.1e}",
            row["trial_id"][:6],
        )
        previous = group
    return table


def _plus_minus(half_width: float | None) -> str:
    return "" if half_width is None else f" ±{half_width:.3f}"


def describe_hypervolumes(areas: pa.Table) -> str:
    """The hypervolume of each fusion's pruned trials (``hypervolume``), in one line."""
    unknown = "unknown without a dense baseline"
    parts = [
        f"{row['fusion']} {_number(row['hypervolume'], '.3f') or unknown}"
        for row in areas.to_pylist()
        if row["method"] != "dense"
    ]
    return f"hypervolume (1: as good as dense down to 1 % of the weights): {', '.join(parts)}"


def losses_table(losses: pa.Table) -> Table:
    """What dropping layers costs and saves, as a rich table (layer dropping, Tables 2 and 3)."""
    names = ("drop", "metric", "loss", "parameters", "train", "infer")
    title = "Layers dropped, against the undropped model"
    table = _table(title, ("task", "encoder", "strategy", *names), text_columns=3)
    previous = None
    for row in losses.to_pylist():
        group = (row["task"], _encoder(row["backbone"]))
        if previous is not None and group != previous:
            table.add_section()
        table.add_row(
            *(group if group != previous else ("", "")),
            "undropped" if row["strategy"] == "none" else row["strategy"],
            str(row["layers_dropped"]),
            f"{row['metric']:.4f}",
            f"{row['loss']:+.2f}" if row["layers_dropped"] else "",
            f"{row['parameters'] / 1e6:.2f} M",
            _number(row["train_speedup"], ".2f", "×"),
            _number(row["infer_speedup"], ".2f", "×"),
        )
        previous = group
    return table


def counts_table(counts: pa.Table) -> Table:
    """Layers that tasks can spare, as a rich table (layer dropping, Table 4): the count, and in
    brackets the points lost on the other half of the dev set; a star where McNemar's p < 0.05."""
    thresholds = sorted(set(counts["threshold"].to_pylist()))
    names = ("task", "encoder", *(f"within {t:g}" for t in thresholds), "trainings")
    table = _table("Layers to spare (lost on the other dev half)", names, text_columns=2)
    lines: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in counts.to_pylist():
        lines.setdefault((row["task"], row["backbone"]), {})[row["threshold"]] = row
    for (task, backbone), cells in lines.items():
        any_row = next(iter(cells.values()))
        spent = f"{any_row['trainings']} of {any_row['grid']}"
        shown = (_count_cell(cells[threshold]) for threshold in thresholds)
        table.add_row(task, _encoder(backbone), *shown, spent)
    return table


def _count_cell(row: dict[str, Any]) -> str:
    star = "*" if row["significant"] else ""
    return f"{row['layers_dropped']} ({row['loss_verification']:.2f}){star}"


def remarks(counts: pa.Table, trials: pa.Table) -> list[str]:
    """What a reader of the counts should know, in a line for each remark."""
    rows = counts.to_pylist()
    lines = []
    if any(row["significant"] for row in rows):
        lines.append("*: differs from the undropped model on the other half, McNemar p < 0.05")
    for task, backbone in _sorted_names(row for row in rows if not row["monotone"]):
        name = f"{task} on {_encoder(backbone)}"
        lines.append(f"{name}: the loss does not rise with every layer; more seeds would tell")
    lines += [_doubt(row) for row in rows if row["certain"] is False]
    if any(row["certain"] is None for row in rows):
        lines.append("one seed can't tell whether a count is off; two or more would")
    counted = set(_sorted_names(rows))
    undropped = [row for row in trials.to_pylist() if row["strategy"] is None]
    without_halves = set(_sorted_names(row for row in undropped if _lacks_halves(row)))
    for task, backbone in _sorted_names(trials.to_pylist()):
        if (task, backbone) not in counted:
            why = "the undropped model did not complete"
            if (task, backbone) in without_halves:
                why = "there are too few dev rows for two halves"
            lines.append(f"{task} on {_encoder(backbone)}: {why}, so there is no count")
    return lines


def _lacks_halves(row: dict[str, Any]) -> bool:
    return row["status"] == Status.COMPLETED and row["metric_verification"] is None


def _doubt(row: dict[str, Any]) -> str:
    """Why a count could be off, from the interval over seeds of what it loses."""
    layers, threshold = row["layers_dropped"], row["threshold"]
    count = f"{layers} layer{'' if layers == 1 else 's'}"
    points = f"{threshold:g} point{'' if threshold == 1 else 's'}"
    why = "a larger count may be within it too"
    if not is_within(row["loss_high"], threshold):
        why = f"it loses {row['loss_low']:.2f} to {row['loss_high']:.2f} (95 % over seeds)"
    name = f"{row['task']} on {_encoder(row['backbone'])}"
    return f"{name}: {count} at {points} could be off: {why}"


def _sorted_names(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted({(row["task"], row["backbone"]) for row in rows})


def mixes_table(mixes: pa.Table, metric_name: str) -> Table:
    """Dropping and pruning at equal sizes, as a rich table; a star on the best of a size, an f on
    what no mix beats in size, metric and latency at once."""
    names = ("size", "dropped", "pruned to", "remaining", metric_name, "latency", "p", "")
    table = _table("Mixes of the same size", names)
    previous = None
    for row in mixes.to_pylist():
        if previous is not None and row["size"] != previous:
            table.add_section()
        spread = f" ± {row['metric_sd']:.3f}" if row["metric_sd"] is not None else ""
        table.add_row(
            f"{row['size']:.1%}" if row["size"] != previous else "",
            str(row["layers_dropped"]),
            _number(row["target_density"], ".1%"),
            f"{row['remaining']:.1%}",
            f"{row['metric']:.4f}{spread}",
            _number(row["latency"] and 1000 * row["latency"], ".1f", " ms"),
            _number(row["p_value"], ".2f"),
            ("*" if row["best"] else "") + ("f" if row["on_frontier"] else ""),
        )
        previous = row["size"]
    return table


def scores_table(scores: pa.Table) -> Table:
    """What scored strategies go by, in a line for each layer, as a rich table."""
    names = ("task", "encoder", "layer", "variance", "aggregate", "contribution")
    table = _table("Layers by their scores", names, text_columns=2)
    previous = None
    for row in scores.to_pylist():
        group = (row["task"], _encoder(row["backbone"]))
        table.add_row(
            *(group if group != previous else ("", "")),
            str(row["layer"]),
            f"{row['variance']:.3e}",
            f"{row['aggregate']:.1f}",
            f"{row['contribution']:.4f}",
        )
        previous = group
    return table


def any_table(rows: pa.Table) -> Table:
    """Whatever a query gave, column by column, as a rich table."""
    table = Table(box=None)
    for field in rows.schema:
        number = pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
        table.add_column(field.name, justify="right" if number else "left")
    # By column: names may repeat, and rows as dicts would lose one of them.
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        cells = (f"{v:.6g}" if isinstance(v, float) else v for v in row)
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    return table


def describe_answers(rows: pa.Table, metric_name: str) -> list[str]:
    """What a search for a target says (``TargetSearch.answers``), a few lines for each fusion."""
    lines = []
    for row in rows.to_pylist():
        head = (
            f"{row['fusion']}: {metric_name} >= {row['target_metric']:.4f} "
            f"(dense {row['dense_metric']:.4f})"
        )
        if row["metric"] is None:
            why = "no pruned trial completed" if row["recipe"] is None else "no seed has a result"
            lines.append(f"{head}: {why}")
            continue
        lines += [
            f"{head}: {_outcome(row)}",
            f"  {metric_name} {row['metric']:.4f}{_plus_minus(row['metric_interval'])} over "
            f"{_seeds(row)} that did not choose it, {row['seeds_met']} of them there",
            f"  {row['sureness']:.0%} sure that the mean over more seeds is there",
            f"  λ {row['multiplier']:.4g}, learning rate {row['learning_rate']:.2e}, "
            f"score rate {row['score_learning_rate']:.2e}, trial {row['trial_id'][:6]}",
        ]
    return lines


def _outcome(row: dict[str, Any]) -> str:
    share = f"with {row['remaining']:.1%} of the weights"
    gap = row["target_metric"] - row["metric"]
    return f"met {share}" if row["met"] else f"not met; {gap:.4f} short, {share}"


def _seeds(row: dict[str, Any]) -> str:
    count = row["seeds"] - row["seeds_failed"]
    return "1 seed" if count == 1 else f"{count} seeds"


def trials_table(rows: pa.Table) -> Table:
    """Any trials of a study, in a line for each, as a rich table."""
    table = Table(box=None)
    columns: tuple[tuple[str, Justify], ...] = (
        ("trial", "left"), ("fusion", "left"), ("method", "left"), ("λ", "right"),
        ("remaining", "right"), ("metric", "right"), ("s", "right"), ("status", "left"),
    )  # fmt: skip
    for name, justify in columns:
        table.add_column(name, justify=justify)
    for row in rows.to_pylist():
        table.add_row(
            row["trial_id"][:6],
            row["fusion"],
            row["method"],
            _number(row["multiplier"], ".3g"),
            _number(row["remaining"], ".1%"),
            _number(row["metric"], ".4f"),
            _number(row["seconds"], ".0f"),
            row["status"] + (f": {row['reason']}" if row["reason"] else ""),
        )
    return table
