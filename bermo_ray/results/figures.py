"""Figures of the results."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by every eye; a marker each for print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vP"


def frontier_figure(table: pa.Table, front: pa.Table, metric_name: str, file: Path) -> Path:
    """Draws each fusion's trials (faint), frontier (line; bars: 95 % over seeds) and dense baseline
    (dashes) to a PNG."""
    done = table.filter(pc.equal(table["status"], "completed"))
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    fusions = sorted(set(table["fusion"].to_pylist()))
    for fusion, colour, marker in zip(fusions, _COLOURS, _MARKERS, strict=False):
        for rows, on_front in ((done, False), (front, True)):
            own = rows.filter(
                pc.and_(pc.equal(rows["fusion"], fusion), pc.not_equal(rows["method"], "dense"))
            )
            x, y = own["remaining"].to_numpy() * 100, own["metric"].to_numpy()
            if on_front:
                axes.plot(x, y, color=colour, marker=marker, ms=5, lw=1.5, label=fusion)
                if "metric_interval" in own.column_names:  # null of one seed: no bar
                    wide = own["metric_interval"].to_numpy()
                    axes.errorbar(x, y, wide, color=colour, ls="none", lw=1, capsize=2)
            else:
                axes.scatter(x, y, color=colour, marker=marker, s=16, alpha=0.3, linewidths=0)
        dense = done.filter(
            pc.and_(pc.equal(done["fusion"], fusion), pc.equal(done["method"], "dense"))
        )
        if dense.num_rows:
            level = pc.mean(dense["metric"]).as_py()
            axes.axhline(level, color=colour, ls="--", lw=1, label=f"{fusion}, dense")
    if done.num_rows == 0:  # a log axis without a point can't be drawn
        axes.set_xlim(1, 100)
        axes.text(10, 0.5, "no trial completed", ha="center")
    _sizes(axes)
    axes.set_ylabel(f"{metric_name} on dev")
    tasks = sorted(set(table["task"].to_pylist()))
    backbones = sorted({Path(b).name for b in table["backbone"].to_pylist()})
    axes.set_title(f"{', '.join(tasks)} on {', '.join(backbones)}", loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    if done.num_rows:
        axes.legend(frameon=False)
    figure.savefig(file, dpi=150)
    return file


def _sizes(axes: Any) -> None:
    """A log axis of per cents, as plain numbers."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda v, _: f"{v:g}" if f"{v:g}"[0] in "25" else ""))  # fmt: skip # noqa: E501
    axes.set_xlabel("remaining encoder parameters, %")


def strategies_figure(losses: pa.Table, file: Path) -> Path:
    """Mean metric over tasks by the number of layers dropped, a line a strategy and a panel an
    encoder (layer dropping, Figure 2), to a PNG. Only counts that every task has are drawn."""
    import numpy as np

    rows = losses.to_pylist()
    backbones = list(dict.fromkeys(r["backbone"] for r in rows)) or ["no whole model completed"]
    figure = Figure(figsize=(1 + 4.5 * len(backbones), 4), layout="constrained")
    panels = figure.subplots(1, len(backbones), squeeze=False)[0]
    for axes, backbone in zip(panels, backbones, strict=True):
        own = [r for r in rows if r["backbone"] == backbone]
        tasks = {r["task"] for r in own}
        whole = float(np.mean([r["metric"] for r in own if r["count"] == 0] or [np.nan]))
        strategies = sorted({r["strategy"] for r in own if r["count"]})
        for place, strategy in enumerate(strategies):
            by_count: dict[int, list[float]] = {}
            for r in own:
                if r["strategy"] == strategy:
                    by_count.setdefault(r["count"], []).append(r["metric"])
            points = {k: np.mean(v) for k, v in sorted(by_count.items()) if len(v) == len(tasks)}
            axes.plot(
                [0, *points], [whole, *points.values()], label=strategy, lw=1.5, ms=5,
                color=_COLOURS[place % len(_COLOURS)], marker=_MARKERS[place % len(_MARKERS)],
                ls="-" if place < len(_COLOURS) else "--",
            )  # fmt: skip
        axes.axhline(whole, color="0.6", ls=":", lw=1)
        axes.set_xticks(sorted({r["count"] for r in own}))
        axes.set_xlabel("layers dropped")
        axes.set_title(f"{Path(backbone).name}: {', '.join(sorted(tasks))}", loc="left", fontsize=9)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("metric on dev, mean over tasks")
    if rows:
        panels[-1].legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=150)
    return file


def counts_figure(counts: pa.Table, file: Path) -> Path:
    """Layers to spare as a heat map of task by threshold, to a PNG; in brackets the points lost on
    the other half of the dev set (layer dropping, Table 4)."""
    import numpy as np

    rows = counts.to_pylist()
    lines = list(dict.fromkeys((r["task"], r["backbone"]) for r in rows))
    thresholds = sorted({r["threshold"] for r in rows})
    share, said = np.full((len(lines), len(thresholds)), np.nan), {}
    for r in rows:
        place = (lines.index((r["task"], r["backbone"])), thresholds.index(r["threshold"]))
        share[place] = 100 * r["count"] / (r["count"] + r["layers"])
        said[place] = f"{r['count']} ({r['loss_second']:.2f})"
    figure = Figure(figsize=(3.2 + 1.1 * len(thresholds), 1.5 + 0.4 * len(lines)), layout="constrained")  # fmt: skip # noqa: E501
    axes = figure.subplots()
    if not rows:
        axes.text(0.5, 0.5, "no whole model completed", ha="center")
        figure.savefig(file, dpi=150)
        return file
    image = axes.imshow(share, cmap="viridis", vmin=0, vmax=100, aspect="auto")
    for (row, column), text in said.items():
        colour = "white" if share[row, column] < 50 else "black"
        axes.text(column, row, text, ha="center", va="center", color=colour, size=9)
    several = len({backbone for _, backbone in lines}) > 1
    names = [f"{task}, {Path(b).name}" if several else task for task, b in lines]
    axes.set_yticks(range(len(lines)), names, fontsize=9)
    axes.set_xticks(range(len(thresholds)), [f"{t:g}" for t in thresholds], fontsize=9)
    axes.set_xlabel("points that may be lost")
    axes.set_title("layers to spare (lost on the other dev half)", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, label="% of layers")
    figure.savefig(file, dpi=150)
    return file


def mixes_figure(mixes: pa.Table, metric_name: str, file: Path) -> Path:
    """Mixes of dropping and pruning: the metric by size, a line for each number of layers dropped,
    and beside it by latency, to a PNG."""
    rows = [r for r in mixes.to_pylist() if r["size"] < 1]
    whole = [r for r in mixes.to_pylist() if r["size"] == 1]
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, count in enumerate(sorted({r["count"] for r in rows})):
        own = [r for r in rows if r["count"] == count]
        look = {
            "color": _COLOURS[place % len(_COLOURS)],
            "marker": _MARKERS[place % len(_MARKERS)],
            "ms": 5,
        }
        y = [r["metric"] for r in own]
        left.plot([100 * r["remaining"] for r in own], y, lw=1.5, label=f"{count} dropped", **look)
        right.plot([1000 * (r["latency"] or 0) for r in own], y, ls="", **look)
    for row in whole:
        for axes in (left, right):
            axes.axhline(row["metric"], color="0.5", ls="--", lw=1)
    _sizes(left)
    left.set_ylabel(f"{metric_name} on dev (dashes: the whole model)")
    right.set_xlabel("latency of a forward, ms (dense kernels)")
    for axes in (left, right):
        axes.grid(alpha=0.25)
    if rows:
        left.legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=150)
    return file


def mixing_figure(weights: list[float], gamma: float | None = None) -> Figure:
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


def sparsity_figure(matrices: list[tuple[str, int, int]], density: float) -> Figure:
    """What is left of each matrix, layers by kinds, as a heat map; rows are (name, kept, size)."""
    import numpy as np

    parts = [(name.removesuffix(".weight").split(".", 1), kept / n) for name, kept, n in matrices]
    layers = sorted({int(place[0]) for place, _ in parts})
    kinds = list(dict.fromkeys(place[1] for place, _ in parts))
    share = np.full((len(layers), len(kinds)), np.nan)
    for (layer, kind), left in parts:
        share[layers.index(int(layer)), kinds.index(kind)] = 100 * left
    size = (1.6 + 0.75 * len(kinds), 1.7 + 0.3 * len(layers))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(share, cmap="viridis", vmin=0, aspect="auto")
    bright = np.nanmax(share) / 2
    for (row, column), value in np.ndenumerate(share):
        if np.isfinite(value):
            colour = "white" if value < bright else "black"
            axes.text(column, row, f"{value:.3g}", ha="center", va="center", color=colour, size=8)
    axes.set_xticks(range(len(kinds)), kinds, rotation=35, ha="right", fontsize=8)
    axes.set_yticks(range(len(layers)), [str(layer + 1) for layer in layers], fontsize=8)
    axes.set_ylabel("layer")
    axes.set_title(f"weights left, %: {density:.2%} of all", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes)
    return figure


def of_trial(report: dict[str, Any]) -> dict[str, Figure]:
    """The figures of a finished trial by file name, from its last report."""
    found = {}
    if "mixing" in report:
        found["mixing.png"] = mixing_figure(report["mixing"], report.get("gamma"))
    if "matrices" in report:
        found["sparsity.png"] = sparsity_figure(report["matrices"], report["density"])
    return found
