"""The sections of a study's report that its trials alone give; each is empty where the study has no
data for it."""

from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray.results.figures import draw_frontier, sparsity_figure
from bermo_ray.results.frontier import GROUP, dense_levels, frontier, usable
from bermo_ray.results.means import completed, mean_over_seeds
from bermo_ray.results.report.arms import (
    ARM,
    metric_label,
    split_panels,
    spread_baselines,
    with_arms,
)
from bermo_ray.results.report.blocks import DataTable, Drawing, Paragraphs, Section
from bermo_ray.results.report.drawings import (
    MOST_DOTS,
    MOST_PANELS,
    mixing_weights_figure,
)
from bermo_ray.results.report.record import StudyRecord
from bermo_ray.results.report.trial_text import link_points

HOW_TO_READ = (
    "Curves are steps: what a seed's curve says of a size was reached by a trained model that is "
    "no larger. Thick curves are means over seeds, with bars for their 95 % intervals. Solid "
    "points are on the frontier of their seed. Point at one to see its trial; click to open its "
    "run, while bermo-ray ui serves the store."
)
_SIZE_STEP = 1.02  # sizes closer than this ratio are one size
_MOST_HEAT_MAPS = 6
_KEPT_METRIC = 0.97  # of the dense baseline's, by a model whose sparsity is shown


def frontier_section(record: StudyRecord, ui_url: str) -> Section:
    """Remaining weights against the metric, a figure for each task and encoder with models of
    several sizes; points tell of their trials and lead to their runs."""
    drawings: list[Drawing] = []
    panels = list(split_panels(with_arms(record.table)))
    for number, (title, rows) in enumerate(panels):
        if len(drawings) == MOST_PANELS or not has_frontier(rows):
            continue
        addresses, points = link_points(usable(rows).to_pylist(), ui_url)
        label = metric_label(rows)
        drawings.append(
            Drawing(
                "frontier" if len(panels) == 1 else f"frontier-{number + 1}",
                f"Remaining weights against {label}{', ' if title else ''}{title}.",
                draw_frontier(spread_baselines(rows), label, ARM, addresses),
                points=points,
            )
        )
    return Section("Frontier", [Paragraphs([HOW_TO_READ]), *drawings] if drawings else [])


def has_frontier(rows: pa.Table) -> bool:
    """Whether trials completed that have models of different sizes."""
    sizes = usable(rows)["remaining"].to_pylist()
    return bool(sizes) and max(sizes) > _SIZE_STEP * min(sizes)


def mixing_section(record: StudyRecord) -> Section:
    """How much each layer counts in the fusions that learn it."""
    table = with_arms(completed(record.table), name_dense=True)
    has_weights = [bool(entry) for entry in table["mixing_weights"].to_pylist()]
    panels: dict[str, dict[str, np.ndarray]] = {}
    for title, rows in split_panels(table.filter(pa.array(has_weights, pa.bool_()))):
        lists: dict[str, list[list[float]]] = {}
        for arm, weights in zip(
            rows[ARM].to_pylist(), rows["mixing_weights"].to_pylist(), strict=True
        ):
            lists.setdefault(arm, []).append(weights)
        panels[title] = {arm: _same_length(weights) for arm, weights in lists.items()}
    if not panels:
        return Section("Mixing weights", [])
    caption = (
        "How much each state counts after training (BERMo: softmax of α; DWAtt: mean attention). "
        f"Bars: mean over completed trials. Dots: each trial; of more than {MOST_DOTS}, lines "
        "from the lowest to the highest. Dashes: all states alike."
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
    return sorted(chosen.values(), key=lambda row: bool(row["fusion"] != "last"))


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
