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
    """Draws each fusion's trials (faint), frontier (line) and dense baseline (dashes) to a PNG."""
    from matplotlib.ticker import FuncFormatter

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
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda v, _: f"{v:g}" if f"{v:g}"[0] in "25" else ""))  # fmt: skip # noqa: E501
    axes.set_xlabel("remaining encoder parameters, %")
    axes.set_ylabel(f"{metric_name} on dev")
    tasks = sorted(set(table["task"].to_pylist()))
    backbones = sorted({Path(b).name for b in table["backbone"].to_pylist()})
    axes.set_title(f"{', '.join(tasks)} on {', '.join(backbones)}", loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    if done.num_rows:
        axes.legend(frameon=False)
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
