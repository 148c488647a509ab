"""Figures of the results."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from bermo_ray.intervals import mean_half_width
from bermo_ray.record import Report
from bermo_ray.results.choice import describe_choice
from bermo_ray.results.curves import Curve, trace_curves
from bermo_ray.results.frontier import dense_levels, frontier, usable

# Okabe and Ito's colours, told apart by every eye; each with a marker, for print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vPX"  # one more than colours: no style comes back before the 43rd
_DPI = 150
KINDS = ("png", "svg")  # of files that a figure is written as
_BAR_SIZES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # remaining weights with bars
_BY_THRESHOLD = ("layers_dropped", "metric_reported")  # where a strategy by threshold is drawn
_DODGE = 1.03  # how far apart the bars of two fusions are, as a ratio of sizes
Row = dict[str, Any]


# In an SVG file text stays text, and the same figure gives the same file.
_SVG_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bermo-ray",
    "font.family": "sans-serif",
}


def save_figure(figure: Figure, file: Path) -> Path:
    """Writes a PNG, and beside it the same as SVG; gives the PNG's file."""
    figure.savefig(file, dpi=_DPI)
    file.with_suffix(".svg").write_text(draw_svg(figure))
    return file


def figure_files(file: Path) -> list[Path]:
    """The PNG of a figure that :func:`save_figure` wrote, and the SVG where there is one."""
    return [file, *(svg for svg in [file.with_suffix(".svg")] if svg != file and svg.is_file())]


def draw_svg(figure: Figure) -> str:
    """The figure as the text of an SVG file."""
    with matplotlib.rc_context(_SVG_SETTINGS), io.StringIO() as buffer:
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


def line_style(index: int) -> dict[str, Any]:
    """Colour and marker of the arm of that number."""
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "ms": 5,
    }


def _with_sizes(axes: Axes) -> None:
    """Makes x a log axis of remaining weights in per cent, as plain numbers."""
    from matplotlib.ticker import FuncFormatter

    def plain_2_and_5(value: float, _: float) -> str:
        text = f"{value:g}"
        return text if text[0] in "25" else ""

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(plain_2_and_5))
    axes.set_xlabel("remaining encoder parameters, %")


def _write_cells(
    axes: Axes, share: np.ndarray, text: list[list[str]], bright: float, size: int
) -> None:
    """Writes into the cells of a heat map, white on the dark ones below ``bright``."""
    for (row, column), value in np.ndenumerate(share):
        if np.isfinite(value):
            colour = "white" if value < bright else "black"
            cell = text[row][column]
            axes.text(column, row, cell, ha="center", va="center", color=colour, size=size)


def frontier_figure(table: pa.Table, metric_name: str, file: Path) -> Path:
    """Draws what each fusion reports at a size (:func:`draw_frontier`), to a PNG and an SVG."""
    return save_figure(draw_frontier(table, metric_name), file)


def draw_frontier(
    table: pa.Table,
    metric_name: str,
    arm: str = "fusion",
    addresses: Mapping[str, str] | None = None,
) -> Figure:
    """What each arm reports at a size.

    Faint: all completed trials, and each seed's curve, chosen by ``metric_selection``. Steps: the
    mean over seeds, from where all of them have a point; with several seeds, bars for the mean's
    95 % interval. Dashes: the dense baseline. Dots: what a constant answer reaches.

    Args:
        table: Trials of one task and encoder.
        metric_name: Of the axis.
        arm: The column that tells the arms apart.
        addresses: What each trial's point links to in an SVG file, by ``run_id``; such points are
            larger, to be pointed at, and each trial is drawn once.
    """
    completed = usable(table)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    curves = trace_curves(table, (arm,))
    unlinked = dict(addresses or {})
    levels: list[float] = []  # that must be in sight
    for index, ((name,), by_seed) in enumerate(curves.items()):
        style = line_style(index)
        trials = completed.filter(pc.equal(completed[arm], name))
        if addresses is None:
            _draw_trials(axes, trials, style)
        else:
            _draw_linked_trials(axes, trials, style, unlinked)
        dodge = _DODGE ** (index - (len(curves) - 1) / 2)
        levels += _draw_curves(axes, name, list(by_seed.values()), style, dodge)
        levels += _draw_dense_baseline(axes, name, trials, style)
    _draw_constant_answers(axes, completed)
    _set_frontier_axes(axes, levels)
    axes.set_ylabel(metric_name)
    tasks = sorted(set(table["task"].to_pylist()))
    backbones = sorted({Path(b).name for b in table["backbone"].to_pylist()})
    title = f"{', '.join(tasks)} on {', '.join(backbones)}: {describe_choice(completed)}"
    axes.set_title(title, loc="left", fontsize=10)
    return figure


def _draw_trials(axes: Axes, trials: pa.Table, style: dict[str, Any]) -> PathCollection:
    return axes.scatter(
        trials["remaining"].to_numpy() * 100, trials["metric_reported"].to_numpy(),
        color=style["color"], marker=style["marker"], s=16, alpha=0.25, linewidths=0,
    )  # fmt: skip


def _draw_linked_trials(
    axes: Axes, trials: pa.Table, style: dict[str, Any], unlinked: dict[str, str]
) -> None:
    """The trials that are not yet drawn, which are taken out of ``unlinked``; solid where they are
    on the frontier of their seed."""
    trials = trials.filter(pc.is_in(trials["run_id"], pa.array(list(unlinked), pa.string())))
    if trials.num_rows == 0:
        return
    on_frontier = set(frontier(trials, ("seed",))["run_id"].to_pylist())
    run_ids = trials["run_id"].to_pylist()
    drawn = _draw_trials(axes, trials, style)
    drawn.set_urls([unlinked.pop(run_id) for run_id in run_ids])
    drawn.set_alpha([0.9 if run_id in on_frontier else 0.35 for run_id in run_ids])
    drawn.set_sizes(np.full(len(run_ids), 34.0))
    drawn.set_zorder(4)  # above the curves, where a pointer gets at them


def _draw_curves(
    axes: Axes, arm: str, curves: Sequence[Curve], style: dict[str, Any], dodge: float
) -> list[float]:
    """The seeds' curves, their mean, and its bars a little aside; gives the levels drawn."""
    for curve in curves if len(curves) > 1 else ():
        x, y = np.append(curve.remaining, 1.0), np.append(curve.reported, curve.reported[-1:])
        axes.step(100 * x[: len(y)], y, where="post", color=style["color"], lw=0.8, alpha=0.35)
    sparsest = max(curve.sparsest for curve in curves)
    if sparsest > 1:  # a seed has no point at all
        return []
    points = np.unique(np.concatenate([curve.remaining for curve in curves]))
    steps = np.append(points[points >= sparsest], 1.0)
    mean = np.mean([curve.at_sizes(steps) for curve in curves], axis=0)
    axes.step(100 * steps, mean, where="post", color=style["color"], lw=1.8)
    several = len(curves) > 1
    sizes = np.array([size for size in _BAR_SIZES if size >= sparsest] if several else points)
    values = np.array([curve.at_sizes(sizes) for curve in curves])
    x, y = 100 * sizes * (dodge if several else 1.0), values.mean(axis=0)
    axes.plot(x, y, ls="", **style)
    axes.errorbar(x, y, mean_half_width(values), color=style["color"], ls="", lw=1, capsize=2)
    label = f"{arm}, mean of {len(curves)} seeds ± 95 %" if several else arm
    axes.plot([], [], lw=1.5, label=label, **style)
    return [*mean, *y, *(float(level) for curve in curves for level in curve.reported)]


def _draw_dense_baseline(
    axes: Axes, arm: str, trials: pa.Table, style: dict[str, Any]
) -> list[float]:
    levels = dense_levels(trials, column="metric_reported")
    known = [float(level) for level in np.unique(levels[np.isfinite(levels)])]
    for level in known:  # one, of one task and backbone
        axes.axhline(level, ls="--", lw=1, label=f"{arm}, dense", **style)
    return known


def _draw_constant_answers(axes: Axes, completed: pa.Table) -> None:
    """One dotted line for each task whose constant answer is known."""
    means = completed.group_by("task").aggregate([("constant_metric", "mean")])
    for level in pc.drop_null(means["constant_metric_mean"]).to_pylist():
        axes.axhline(level, color="0.4", ls=":", lw=1, label=f"constant answer, {level:.3f}")


def _set_frontier_axes(axes: Axes, levels: Sequence[float]) -> None:
    """Scales and legend. What lies far below the curves is out of sight: they would be flat."""
    if levels:
        margin = 0.1 * (max(levels) - min(levels)) or 0.01
        axes.set_ylim(min(levels) - margin, max(levels) + margin)
        axes.legend(edgecolor="none", framealpha=0.7, fontsize=8)
    else:  # a log axis without a point can't be drawn
        axes.set_xlim(1, 100)
        axes.text(10, 0.5, "no trial completed", ha="center")
    _with_sizes(axes)
    axes.grid(alpha=0.25)


def strategies_figure(losses: pa.Table, file: Path, metric_name: str = "metric") -> Path:
    """Mean reported metric over tasks by the number of layers dropped, with a line for each
    strategy and a panel for each encoder (layer dropping, Figure 2), to a PNG and an SVG. Only
    counts that all tasks have are drawn."""
    rows = losses.to_pylist()
    backbones = list(dict.fromkeys(r["backbone"] for r in rows)) or ["no undropped model completed"]
    figure = Figure(figsize=(1 + 4.5 * len(backbones), 4), layout="constrained")
    panels = figure.subplots(1, len(backbones), squeeze=False)[0]
    for axes, backbone in zip(panels, backbones, strict=True):
        _draw_strategies(axes, backbone, [r for r in rows if r["backbone"] == backbone])
    panels[0].set_ylabel(f"{metric_name}, mean over tasks")
    if rows:
        panels[-1].legend(frameon=False, fontsize=8)
    return save_figure(figure, file)


def _draw_strategies(axes: Axes, backbone: str, rows: Sequence[Row]) -> None:
    tasks = {r["task"] for r in rows}
    undropped = [r["metric_reported"] for r in rows if r["strategy"] == "none"]
    level = float(np.mean(undropped or [np.nan]))
    strategies = sorted({r["strategy"] for r in rows if r["layers_dropped"]})
    by_count = [name for name in strategies if " > " not in name]
    for index, strategy in enumerate(by_count):
        metrics: dict[int, list[float]] = {}
        for row in rows:
            if row["strategy"] == strategy:
                metrics.setdefault(row["layers_dropped"], []).append(row["metric_reported"])
        means = {k: float(np.mean(v)) for k, v in sorted(metrics.items()) if len(v) == len(tasks)}
        style = line_style(index)
        if index >= len(_COLOURS):  # a colour comes back: another line and an open mark
            style |= {"ls": "--", "mfc": "white"}
        label = strategy.replace("_", " ")
        axes.plot([0, *means], [level, *means.values()], label=label, lw=1.5, **style)
    for strategy in (name for name in strategies if " > " in name):
        chosen = [r for r in rows if r["strategy"] == strategy]
        if len(chosen) == len(tasks):  # how many layers go differs from task to task
            x, y = (float(np.mean([r[c] for r in chosen])) for c in _BY_THRESHOLD)
            axes.plot(x, y, "*", ms=11, color="0.25")
            axes.annotate(
                strategy, (x, y), (-8, 0), textcoords="offset points", size=7, ha="right",
                va="center",
            )  # fmt: skip
    axes.axhline(level, color="0.6", ls=":", lw=1)
    axes.set_xticks(sorted({r["layers_dropped"] for r in rows}))
    axes.set_xlabel("layers dropped")
    axes.set_title(f"{Path(backbone).name}: {', '.join(sorted(tasks))}", loc="left", fontsize=9)
    axes.grid(alpha=0.25)


def counts_figure(counts: pa.Table, file: Path) -> Path:
    """Layers to spare as a heat map of task by threshold, to a PNG and an SVG; in brackets the
    points lost on the other half of the dev set (layer dropping, Table 4)."""
    rows = counts.to_pylist()
    lines = list(dict.fromkeys((r["task"], r["backbone"]) for r in rows))
    thresholds = sorted({r["threshold"] for r in rows})
    size = (3.2 + 1.1 * len(thresholds), 1.5 + 0.4 * len(lines))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    if not rows:
        axes.text(0.5, 0.5, "no undropped model completed", ha="center")
        return save_figure(figure, file)
    share = np.full((len(lines), len(thresholds)), np.nan)
    text = [["" for _ in thresholds] for _ in lines]
    for r in rows:
        line = lines.index((r["task"], r["backbone"]))
        column = thresholds.index(r["threshold"])
        depth = r["layers_dropped"] + r["layers_left"]
        share[line, column] = 100 * r["layers_dropped"] / depth
        text[line][column] = f"{r['layers_dropped']} ({r['loss_verification']:.2f})"
    image = axes.imshow(share, cmap="viridis", vmin=0, vmax=100, aspect="auto")
    _write_cells(axes, share, text, bright=50, size=9)
    several = len({backbone for _, backbone in lines}) > 1
    names = [f"{task}, {Path(b).name}" if several else task for task, b in lines]
    axes.set_yticks(range(len(lines)), names, fontsize=9)
    axes.set_xticks(range(len(thresholds)), [f"{t:g}" for t in thresholds], fontsize=9)
    axes.set_xlabel("points that may be lost")
    axes.set_title("layers to spare (lost on the other dev half)", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, label="% of layers")
    return save_figure(figure, file)


def mixes_figure(mixes: pa.Table, metric_name: str, file: Path) -> Path:
    """Mixes of fusion, teacher, dropping and pruning: the reported metric by size and beside it by
    latency, to a PNG and an SVG. Colours are fusions, filled marks have a teacher, kinds of marks
    are numbers of layers dropped; rings are on the frontier."""
    all_rows = mixes.to_pylist()
    rows = [r for r in all_rows if r["size"] < 1]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    by_size, by_latency = figure.subplots(1, 2, sharey=True)
    fusions = sorted({r["fusion"] for r in all_rows}, key=lambda name: name != "last")
    counts = sorted({r["layers_dropped"] for r in rows})
    for axes, column, scale in ((by_size, "remaining", 100), (by_latency, "latency", 1000)):
        for r in (r for r in rows if r[column] is not None):
            colour, marker = _mix_style(r, fusions, counts)
            fill = colour if r["distilled"] else "white"
            x, y = scale * r[column], r["metric_reported"]
            if r["on_frontier"]:
                axes.plot(x, y, "o", ms=14, mfc="none", mec="0.3", lw=0.8)
            axes.plot(x, y, marker, ms=7, mfc=fill, mec=colour, mew=1.5)
        for r in (r for r in all_rows if r["size"] == 1):
            colour = _COLOURS[fusions.index(r["fusion"])]
            axes.axhline(r["metric_reported"], color=colour, ls="--", lw=1)
        axes.grid(alpha=0.25)
    _with_sizes(by_size)
    by_size.set_ylabel(f"{metric_name} (dashes: nothing dropped or pruned)")
    by_latency.set_xlabel("latency of a forward, ms (dense kernels)")
    _add_mix_legend(by_latency, fusions, counts)
    return save_figure(figure, file)


def _mix_style(row: Row, fusions: Sequence[str], counts: Sequence[int]) -> tuple[str, str]:
    colour = _COLOURS[fusions.index(row["fusion"]) % len(_COLOURS)]
    return colour, _MARKERS[counts.index(row["layers_dropped"]) % len(_MARKERS)]


def _add_mix_legend(axes: Axes, fusions: Sequence[str], counts: Sequence[int]) -> None:
    for index, fusion in enumerate(fusions):
        axes.plot([], [], lw=4, color=_COLOURS[index % len(_COLOURS)], label=fusion)
    for index, count in enumerate(counts):
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot([], [], marker, color="0.3", mfc="white", label=f"{count} layers dropped")
    axes.plot([], [], "o", color="0.3", label="filled: with a teacher")
    axes.plot([], [], "o", ms=12, mfc="none", mec="0.3", label="on the frontier")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def mixing_figure(weights: Sequence[float], gamma: float | None = None) -> Figure:
    """How much each state counts, embeddings (0) first: BERMo's softmax(α), DWAtt's attention."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(len(weights)), weights, color=_COLOURS[0])
    axes.axhline(1 / len(weights), color="0.4", ls="--", lw=1)
    axes.text(len(weights) - 0.5, 1 / len(weights), "uniform", ha="right", va="bottom", fontsize=8)
    axes.set_xticks(range(len(weights)))
    axes.set_xlabel("layer (0: embeddings)")
    axes.set_ylabel("mixing weight")
    if gamma is not None:
        axes.set_title(f"γ = {gamma:.3f}", loc="left", fontsize=10)
    return figure


def sparsity_figure(kept_by_matrix: Sequence[tuple[str, int, int]], density: float) -> Figure:
    """What is left of each matrix, layers by kinds, as a heat map; entries are (name, weights kept,
    size), names as ``LAYER.KIND.weight`` with layers from 0."""
    shares = [
        (name.removesuffix(".weight").split(".", 1), kept / size)
        for name, kept, size in kept_by_matrix
    ]
    layers = sorted({int(layer) for (layer, _), _ in shares})
    kinds = list(dict.fromkeys(kind for (_, kind), _ in shares))
    percent = np.full((len(layers), len(kinds)), np.nan)
    for (layer, kind), share in shares:
        percent[layers.index(int(layer)), kinds.index(kind)] = 100 * share
    size = (1.6 + 0.75 * len(kinds), 1.7 + 0.3 * len(layers))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(percent, cmap="viridis", vmin=0, aspect="auto")
    text = [[f"{value:.3g}" for value in row] for row in percent]
    _write_cells(axes, percent, text, bright=float(np.nanmax(percent)) / 2, size=8)
    axes.set_xticks(range(len(kinds)), kinds, rotation=35, ha="right", fontsize=8)
    axes.set_yticks(range(len(layers)), [str(layer + 1) for layer in layers], fontsize=8)
    axes.set_ylabel("layer")
    axes.set_title(f"weights left, %: {density:.2%} of all", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes)
    return figure


def trial_figures(report: Report) -> dict[str, Figure]:
    """The figures of a finished trial by file name, from its last report."""
    figures = {}
    if report.mixing_weights:
        gamma = report.gamma if report.finite("gamma") else None
        figures["mixing"] = mixing_figure(report.mixing_weights, gamma)
    if report.kept_by_matrix:
        figures["sparsity"] = sparsity_figure(report.kept_by_matrix, report.density)
    return {f"{name}.{kind}": figure for name, figure in figures.items() for kind in KINDS}
