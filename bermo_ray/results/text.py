"""Tables for people: Arrow rows in a terminal of 80 columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from bermo_ray.intervals import mean_half_width
from bermo_ray.record import Status
from bermo_ray.results.choice import describe_choice
from bermo_ray.results.published import published_values
from bermo_ray.results.varying import short_names, varying_settings
from bermo_ray.search.layer_count_search import is_within


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
    """The models on a frontier, sparse to dense for each fusion and method, as a rich table.

    Args:
        front: From :func:`bermo_ray.results.frontier` of the trials of all seeds together; by
            fusion and method, or by fusion alone.
        metric_name: What is reported.
    """
    names = ("remaining", metric_name, "λ", "learning rate", "score rate", "seed", "trial")
    title = (
        f"Models on the frontier: {describe_choice(front)}\n"
        "No trial of its fusion and method is smaller and better on the rows that chose"
    )
    table = _table(title, ("fusion", "method", *names), text_columns=2, pad_edge=False)
    for column in (table.columns[0], table.columns[1], table.columns[-1]):
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
            f"{row['metric_reported']:.4f}",
            "" if dense else _number(row["multiplier"], ".3g"),
            f"{row['learning_rate']:.1e}",
            "" if dense else f"{row['score_learning_rate']:.1e}",
            str(row["seed"]),
            row["trial_id"][:6],
        )
        previous = group
    return table


def sizes_table(sizes: pa.Table, metric_name: str) -> Table:
    """What each fusion reaches at a size (``metric_at_sizes`` of one task and backbone), as a rich
    table: a line for each size, a column for each fusion, ± half of the mean's 95 % interval."""
    rows = sizes.to_pylist()
    fusions = list(dict.fromkeys(row["fusion"] for row in rows))
    cells = {(row["size"], row["fusion"]): _size_cell(row) for row in rows}
    title = f"{metric_name.capitalize()} at a size: {_count_seeds(rows)}"
    table = _table(title, ("at most", *fusions), min_width=len(title))
    for size in dict.fromkeys(row["size"] for row in rows):
        table.add_row(f"{size:.1%}", *(cells.get((size, fusion), "") for fusion in fusions))
    return table


def _size_cell(row: dict[str, Any]) -> str:
    if row["metric_reported"] is None:
        return "none" + ("" if row["seeds"] == 1 else f" in {_of_seeds(row, 'unreached')}")
    return f"{row['metric_reported']:.4f}{_plus_minus(row['interval'])}"


def _plus_minus(half_width: float | None) -> str:
    return "" if half_width is None else f" ±{half_width:.3f}"


def _of_seeds(row: dict[str, Any], column: str) -> str:
    return f"{row[column]} of {row['seeds']} seed{'' if row['seeds'] == 1 else 's'}"


def _count_seeds(rows: Iterable[dict[str, Any]]) -> str:
    """How many seeds stand behind the means of these rows."""
    counts = sorted({row["seeds"] for row in rows})
    if counts in ([], [1]):
        return "one seed, so no interval"
    return f"mean of {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds, ± 95 %"


def levels_table(levels: pa.Table, ratios: pa.Table | None, metric_name: str) -> Table:
    """The weights that each arm needs to reach a level, as a rich table, with 95 % intervals.

    Args:
        levels: From ``remaining_at_levels``.
        ratios: From ``compare_arms``, for how many times fewer weights later arms need than the
            first; None without a comparison, as of one seed.
        metric_name: What the levels are of.
    """
    rows = levels.to_pylist()
    compared = {
        (r["share"], r["second"]): r for r in ([] if ratios is None else ratios.to_pylist())
    }
    first = next((row["first"] for row in compared.values()), None)
    interval = " (95 %)" if any(row["seeds"] > 1 for row in rows) else ""
    names = ["share", metric_name, "arm", f"remaining{interval}"]
    names += [] if first is None else [f"times fewer\nthan {first}{interval}"]
    title = f"Weights that reach a share of the better dense baseline's {metric_name}"
    if rows:
        title += f", {rows[0]['level'] / rows[0]['share']:.4f}"
    table = _table(title, names, text_columns=len(names), min_width=min(len(title), 80))
    table.columns[3].no_wrap = True
    previous = None
    for row in rows:
        if previous is not None and row["share"] != previous:
            table.add_section()
        share = (
            (f"{row['share']:g}", f"{row['level']:.4f}") if row["share"] != previous else ("", "")
        )
        ratio = compared.get((row["share"], row["arm"]))
        cells = [*share, row["arm"], _remaining_cell(row)]
        table.add_row(*cells, *([] if ratio is None else [_ratio_cell(ratio)]))
        previous = row["share"]
    return table


def _remaining_cell(row: dict[str, Any]) -> str:
    if row["remaining"] is None:
        return f"not reached in {_of_seeds(row, 'unreached')}"
    remaining = f"{row['remaining']:.1%}"
    if row["low"] is None:
        return remaining
    return f"{remaining} ({_share_end(row['low'])} to {_share_end(row['high'])})"


def _share_end(share: float) -> str:
    """An end of an interval of remaining weights, of which there are none and all at most."""
    if share > 1:
        return ">100%"
    return f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def _ratio_cell(row: dict[str, Any]) -> str:
    if row["ratio"] is None:  # the cell for remaining weights says why
        return "none"
    return f"{row['ratio']:.2f} ({row['low']:.3g} to {row['high']:.3g})"


def describe_areas(areas: pa.Table) -> list[str]:
    """How the areas below two arms' curves differ (``compare_areas``), in two lines for each
    pair."""
    lines = []
    for row in areas.to_pylist():
        first, second = row["first"], row["second"]
        if row["difference"] is None:
            lines.append(f"area below the curves: {first} and {second} share no range of sizes")
            continue
        interval = f"95 % over {row['seeds']} seeds: {row['low']:+.3f} to {row['high']:+.3f}"
        lines += [
            f"area below the curves from {row['sparsest']:.1%} of the weights on (1: dense):",
            f"  {first} {row['area_first']:.3f}, {second} {row['area_second']:.3f}: "
            f"{row['difference']:+.3f} ({interval})",
        ]
    return lines


def describe_hypervolumes(areas: pa.Table) -> str:
    """The hypervolume of each fusion's pruned trials (``hypervolume``) in one line: with a row for
    each seed the mean, ± half of its 95 % interval."""
    values: dict[str, list[float | None]] = {}
    for row in areas.to_pylist():
        if row["method"] != "dense":
            values.setdefault(row["fusion"], []).append(row["hypervolume"])
    parts = [f"{fusion} {_mean_hypervolume(of_seeds)}" for fusion, of_seeds in values.items()]
    return f"hypervolume (1: dense down to 1 %): {', '.join(parts)}"


def _mean_hypervolume(values: Sequence[float | None]) -> str:
    known = np.array([value for value in values if value is not None])
    if len(known) < len(values):
        return "unknown without a dense baseline"
    half_width = float(mean_half_width(known))
    return f"{known.mean():.3f}{_plus_minus(None if math.isnan(half_width) else half_width)}"


def counts_table(counts: pa.Table) -> Table:
    """Layers that tasks can spare, as a rich table (layer dropping, Table 4): the count, and in
    brackets the points lost on the other half of the dev set; a star where McNemar's p < 0.05.
    Below a task and encoder of Table 4 stands what that has."""
    thresholds = sorted(set(counts["threshold"].to_pylist()))
    names = ("task", "encoder", *(f"within {t:g}" for t in thresholds), "trainings")
    table = _table("Layers to spare (lost on the other dev half)", names, text_columns=2)
    keys = ("task", "backbone", "threshold", "quantity")
    told = published_values("layer_dropping", "T4", keys)
    lines: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in counts.to_pylist():
        lines.setdefault((row["task"], row["backbone"]), {})[row["threshold"]] = row
    for (task, backbone), cells in lines.items():
        any_row, encoder = next(iter(cells.values())), _encoder(backbone)
        spent = f"{any_row['trainings']} of {any_row['grid']}"
        shown = (_count_cell(cells[threshold]) for threshold in thresholds)
        table.add_row(task, encoder, *shown, spent)
        if any((task, encoder, threshold, "loss") in told for threshold in thresholds):
            paper = (_published_count(told, task, encoder, threshold) for threshold in thresholds)
            table.add_row("", "  in the paper", *paper)
    return table


def _published_count(
    told: Mapping[tuple[Any, ...], float], task: str, encoder: str, threshold: float
) -> str:
    cell = [told.get((task, encoder, threshold, name)) for name in ("layers_dropped", "loss")]
    return "" if cell[0] is None or cell[1] is None else f"{cell[0]:g} ({cell[1]:.2f})"


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
    """Mixes of fusion, teacher, dropping and pruning at equal sizes, as a rich table; a star on the
    best of a size, an f on what no mix beats in size, metric and latency at once, both by
    ``metric_selection``; the metric shown is ``metric_reported``, ± half of its 95 % interval."""
    names = ("layers\ndropped", "pruned\nto", "weights\nleft", metric_name, "latency", "p", "")
    table = _table("Mixes of the same size", ("size", "fusion", "teacher", *names), text_columns=3)
    table.padding = (0, 1, 0, 0)
    previous = None
    for row in mixes.to_pylist():
        if previous is not None and row["size"] != previous:
            table.add_section()
        table.add_row(
            f"{row['size']:.0%}" if row["size"] != previous else "",
            row["fusion"],
            "yes" if row["distilled"] else "no",
            str(row["layers_dropped"]),
            _number(row["target_density"], ".1%"),
            f"{row['remaining']:.1%}",
            f"{row['metric_reported']:.4f}{_plus_minus(row['reported_interval'])}",
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
        table.add_column(field.name, justify="right" if number else "left", no_wrap=True)
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
    """Any trials of a study, in a line for each, as a rich table: what varies among them, what came
    out, and how they ended."""
    varying = varying_settings(rows)
    names = short_names(list(varying))
    pruned = any(share is not None and share < 1 for share in rows["remaining"].to_pylist())
    measured = [*(["remaining"] if pruned else []), "metric", "seconds"]
    table = Table(box=None, pad_edge=False)
    for name in ("trial", *names.values()):
        table.add_column(name, no_wrap=True)
    for name in measured:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", min_width=10)
    forms = {"remaining": ".1%", "metric": ".4f", "seconds": ".0f"}
    for index, row in enumerate(rows.to_pylist()):
        table.add_row(
            row["trial_id"][:6],
            *(_setting(field, values[index]) for field, values in varying.items()),
            *(_number(row[name], forms[name]) for name in measured),
            row["status"] + (f": {row['reason']}" if row["reason"] else ""),
        )
    return table


def studies_table(rows: pa.Table) -> Table:
    """Studies of a store, the newest last, as a rich table."""
    table = _table(None, ("study", "started", "status", "trials", "of them", "tasks"), 6)
    table.columns[0].no_wrap = True
    for row in rows.to_pylist():
        others = [
            f"{row[name]} {name}"
            for name in ("diverged", "stopped", "failed", "unfinished", "taken")
            if row[name]
        ]
        table.add_row(
            row["study"],
            f"{row['started']:%Y-%m-%d %H:%M}",
            row["status"],
            str(row["trials"]),
            ", ".join(others),
            row["tasks"] if row["tasks"].count(",") < 3 else f"{row['tasks'].count(',') + 1} tasks",
        )
    return table


def _setting(field: str, value: Any) -> str:
    if value is None:
        return "dense" if field == "pruning.method" else ""
    if isinstance(value, str):
        return _encoder(value) if "/" in value and field != "data.task" else value
    return f"{value:.3g}" if isinstance(value, float) else str(value)
