"""The sections of a study's report that its trials alone give; each is empty where the study has no
data for it."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.figures import draw_frontier, sparsity_figure
from bermo_ray.results.frontier import GROUP, dense_levels, frontier, is_dense, usable
from bermo_ray.results.means import completed, mean_over_seeds
from bermo_ray.results.report.arms import (
    ARM,
    label_recipes,
    metric_label,
    split_panels,
    spread_baselines,
    with_arms,
)
from bermo_ray.results.report.blocks import DataTable, Drawing, Section
from bermo_ray.results.report.drawings import (
    MOST_PANELS,
    TrainingCurve,
    mixing_weights_figure,
    training_figure,
)
from bermo_ray.results.report.record import StudyRecord
from bermo_ray.results.report.trial_text import link_points

_MOST_RECIPES = 6  # curves in a panel; of more, only the best of each arm and seed are drawn
_MOST_HEAT_MAPS = 6
_KEPT_METRIC = 0.97  # of the dense baseline's, by a model whose sparsity is shown


def frontier_section(record: StudyRecord, ui_url: str) -> Section:
    """Remaining weights against the metric, a figure for each task and encoder of which a model was
    made smaller; points tell of their trials and lead to their runs."""
    drawings: list[Drawing] = []
    panels = list(split_panels(with_arms(record.table)))
    for number, (title, rows) in enumerate(panels):
        if len(drawings) == MOST_PANELS or not has_smaller_models(rows):
            continue
        addresses, points = link_points(usable(rows).to_pylist(), ui_url)
        drawings.append(
            Drawing(
                "frontier" if len(panels) == 1 else f"frontier-{number + 1}",
                f"{title + ': r' if title else 'R'}emaining weights against {metric_label(rows)}. "
                "Curves are steps: what a seed's curve says of a size was reached by a model that "
                "is no larger; the thick curve is the mean over seeds. Solid points are on the "
                "frontier of their seed. Point at one to see its trial, click to open its run.",
                draw_frontier(spread_baselines(rows), metric_label(rows), ARM, addresses),
                points=points,
            )
        )
    return Section("Frontier", drawings)


def has_smaller_models(rows: pa.Table) -> bool:
    """Whether a trial with pruned weights or dropped layers completed."""
    return usable(rows.filter(pc.invert(is_dense(rows)))).num_rows > 0


def training_section(record: StudyRecord) -> Section:
    """The metric and, where weights were pruned, what remained, over the epochs."""
    table = completed(record.table)
    panels = list(split_panels(table))
    if not panels:
        return Section("Training", [])
    labelled, chosen = _choose_curves(table)
    label = metric_label(table)
    note = f" The first {MOST_PANELS} of {len(panels)} are drawn." if len(panels) > 12 else ""
    drawings: list[Drawing] = []
    for key, name, axis, scale in (
        ("metric", "training", f"{label} on dev", 1.0),
        ("remaining", "remaining", "remaining encoder parameters, %", 100.0),
    ):
        curves = {
            title: by_arm
            for title, rows in split_panels(labelled)
            if (by_arm := _collect_curves(record, rows, key))
        }
        if not curves or (key == "remaining" and not _varies(curves)):
            continue
        begin = f"{axis[0].upper()}{axis[1:]} over the epochs, {chosen}: "
        caption = f"{begin}mean, and a band from the lowest to the highest."
        drawings.append(Drawing(name, caption + note, training_figure(curves, axis, scale)))
    return Section("Training", drawings)


def _choose_curves(table: pa.Table) -> tuple[pa.Table, str]:
    """The trials whose curves are drawn, with their labels as arms, and which they are."""
    labels = label_recipes(table)
    table = with_arms(table)
    per_panel = [len(set(label_recipes(rows))) for _, rows in split_panels(table)]
    if max(per_panel) <= _MOST_RECIPES and len(set(labels)) <= _MOST_RECIPES:
        index = table.schema.get_field_index(ARM)
        return table.set_column(index, ARM, pa.array(labels, pa.string())), "over seeds"
    best: dict[tuple[str, ...], tuple[float, int]] = {}
    for number, row in enumerate(table.to_pylist()):
        metric = row["metric_selection"]
        key = (row["task"], row["backbone"], row[ARM], row["method"], str(row["seed"]))
        if metric is not None and metric > best.get(key, (-np.inf, 0))[0]:
            best[key] = (metric, number)
    rows = table.take(pa.array(sorted(number for _, number in best.values()), pa.int64()))
    methods = rows["method"].to_pylist()
    if len(set(methods)) > 1:
        arms = [
            a if m in a else f"{a}, {m}"
            for a, m in zip(rows[ARM].to_pylist(), methods, strict=True)
        ]
        rows = rows.set_column(rows.schema.get_field_index(ARM), ARM, pa.array(arms, pa.string()))
    return rows, "of each seed's best trial of an arm on the rows that choose"


def _collect_curves(
    record: StudyRecord, rows: pa.Table, key: str
) -> dict[str, list[TrainingCurve]]:
    """The curves of a panel by arm; of trials with one evaluation there is nothing to draw."""
    by_arm: dict[str, list[TrainingCurve]] = {}
    for arm, run_id in zip(rows[ARM].to_pylist(), rows["run_id"].to_pylist(), strict=True):
        curves = record.curves.get(run_id, {})
        epochs, values = curves.get("epoch", {}), curves.get(key, {})
        steps = sorted(epochs.keys() & values.keys())
        if len(steps) > 1:
            curve = TrainingCurve([epochs[s] for s in steps], [values[s] for s in steps])
            by_arm.setdefault(arm, []).append(curve)
    return by_arm


def _varies(panels: dict[str, dict[str, list[TrainingCurve]]]) -> bool:
    curves = [
        curve for by_arm in panels.values() for several in by_arm.values() for curve in several
    ]
    return any(max(curve.values) - min(curve.values) > 1e-9 for curve in curves)


def mixing_section(record: StudyRecord) -> Section:
    """How much each layer counts in the fusions that learn it."""
    table = completed(record.table)
    weights = table["mixing_weights"].to_pylist()
    table = with_arms(table).filter(pa.array([bool(entry) for entry in weights], pa.bool_()))
    panels: dict[str, dict[str, np.ndarray]] = {}
    for title, rows in split_panels(table):
        lists: dict[str, list[list[float]]] = {}
        for row in rows.to_pylist():
            arm = row[ARM] if row["method"] in row[ARM] else f"{row[ARM]}, {row['method']}"
            lists.setdefault(arm.replace("_", " "), []).append(row["mixing_weights"])
        panels[title] = {arm: _same_length(lists[arm]) for arm in lists}
    if not panels:
        return Section("Mixing weights", [])
    caption = (
        "How much each state counts after training (BERMo: softmax of α; DWAtt: mean attention). "
        "Bars: mean over completed trials; dots: each trial; dashes: all states alike."
    )
    drawing = Drawing("mixing-weights", caption, mixing_weights_figure(panels))
    return Section("Mixing weights", [drawing])


def _same_length(lists: list[list[float]]) -> np.ndarray:
    """Those lists that are as long as most: models with dropped layers have fewer states."""
    lengths = [len(entry) for entry in lists]
    most = max(set(lengths), key=lengths.count)
    return np.array([entry for entry in lists if len(entry) == most])


def sparsity_section(record: StudyRecord) -> Section:
    """What is left of each matrix of one model of each arm: the smallest on its frontier that keeps
    97 % of the dense baseline's metric or, where none does, the best."""
    drawings: list[Drawing] = []
    for row in _choose_sparse_models(record.table):
        kept = record.read_kept_weights(row["run_id"])
        if kept and len(drawings) < _MOST_HEAT_MAPS:
            caption = (
                f"{row['task']}, {row['fusion']}, {row['method'].replace('_', ' ')}: weights left "
                f"in each matrix of trial {row['trial_id'][:6]}, {metric_label(record.table)} "
                f"{row['metric_reported']:.4f} with {row['remaining']:.1%} of the encoder's "
                "parameters."
            )
            name = f"sparsity-{len(drawings) + 1}"
            drawings.append(Drawing(name, caption, sparsity_figure(kept, row["density"])))
    return Section("Where weights remain", drawings)


def _choose_sparse_models(table: pa.Table) -> list[dict[str, Any]]:
    points = usable(table)
    points = points.append_column("dense_level", pa.array(dense_levels(points), pa.float64()))
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in frontier(points).to_pylist():  # from sparse to dense, metric_selection rising
        group = tuple(row[name] for name in GROUP)
        is_settled = group in chosen and _keeps_metric(chosen[group])
        if row["method"] != "dense" and not is_settled:
            chosen[group] = row
    return list(chosen.values())


def _keeps_metric(row: dict[str, Any]) -> bool:
    return bool(row["metric_selection"] >= _KEPT_METRIC * row["dense_level"])


def layers_section(record: StudyRecord) -> Section:
    """The reported metric by how many layers were dropped, where any were."""
    table = record.table
    if not any(table["layers_dropped"].to_pylist()):
        return Section("Layers dropped", [])
    means = mean_over_seeds(table, ("task", "backbone", "strategy", "layers_dropped"))
    order = [(name, "ascending") for name in ("task", "backbone", "strategy", "layers_dropped")]
    rows = [
        (
            row["task"], row["backbone"].rpartition("/")[2], row["strategy"] or "none",
            str(row["layers_dropped"]), _mean(row), str(row["seeds"]),
        )
        for row in means.sort_by(order).to_pylist()
    ]  # fmt: skip
    heads = ("task", "encoder", "strategy", "layers dropped", metric_label(table), "trials")
    is_number = (False, False, False, True, True, True)
    return Section("Layers dropped", [DataTable(heads, rows, is_number)])


def _mean(row: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "none completed"
    half_width = "" if row["interval"] is None else f" ± {row['interval']:.4f}"
    return f"{row['mean']:.4f}{half_width}"
