"""Figures of grids: means of arms with their intervals, as dots or along a line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bermo_ray.results.figures import line_style, save_figure

_DODGE = 0.16  # of a line's height, between the dots of two arms


def dots_figure(
    means: pa.Table,
    rows: Sequence[str],
    arm: str,
    label: str,
    file: Path,
    scale: float = 100,
) -> Path:
    """A line for each group of ``rows`` with a dot for each arm, bars for the mean's 95 % interval,
    to a PNG and an SVG.

    Args:
        means: From :func:`bermo_ray.results.means.mean_over_seeds`.
        rows: Columns that name a line.
        arm: The column whose values are the arms.
        label: Of the axis of numbers.
        file: What is written.
        scale: What means are multiplied by.
    """
    lines = [
        {"line": ", ".join(_tick(row[name]) for name in rows), "arm": row[arm]} | row
        for row in means.to_pylist()
    ]
    names = list(dict.fromkeys(line["line"] for line in lines))
    arms = list(dict.fromkeys(line["arm"] for line in lines))
    figure = Figure(figsize=(7, 1.4 + 0.42 * max(1, len(names))), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(arms):
        offset = _DODGE * (index - (len(arms) - 1) / 2)
        drawn = [line for line in lines if line["arm"] == name and line["mean"] is not None]
        height = [names.index(line["line"]) + offset for line in drawn]
        _draw_means(axes, drawn, height, str(name), index, scale)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.grid(axis="x", alpha=0.25)
    if len(arms) > 1:
        axes.legend(edgecolor="none", framealpha=0.7, fontsize=8)
    return save_figure(figure, file)


def _draw_means(
    axes: Axes, rows: Sequence[dict[str, Any]], height: Sequence[float], label: str, index: int,
    scale: float,
) -> None:  # fmt: skip
    style = line_style(index)
    x = np.array([scale * r["mean"] for r in rows])
    bars = np.array([scale * (r["interval"] or 0.0) for r in rows])
    axes.plot(x, height, ls="", label=label, **style)
    axes.errorbar(x, height, xerr=bars, ls="", color=style["color"], lw=1, capsize=2)


def _tick(name: Any) -> str:
    return Path(name).name if isinstance(name, str) else str(name)


def lines_figure(
    means: pa.Table,
    x: str,
    arm: str,
    label: str,
    file: Path,
    panel: str | None = None,
    scale: float = 100,
    log_x: bool = False,
) -> Path:
    """A line for each arm along ``x``, with bars for the mean's 95 % interval, and a panel for each
    value of ``panel``, to a PNG and an SVG; other arguments as of :func:`dots_figure`."""
    rows = means.to_pylist()
    panels = list(dict.fromkeys(r[panel] for r in rows)) if panel else [None]
    arms = list(dict.fromkeys(r[arm] for r in rows))
    figure = Figure(figsize=(1 + 3.6 * max(1, len(panels)), 3.8), layout="constrained")
    grid = figure.subplots(1, max(1, len(panels)), squeeze=False, sharey=True)[0]
    for axes, value in zip(grid, panels, strict=False):
        for index, name in enumerate(arms):
            drawn = [
                r for r in rows
                if r[arm] == name and r["mean"] is not None and (not panel or r[panel] == value)
            ]  # fmt: skip
            drawn.sort(key=lambda r: float(r[x]))
            style = line_style(index)
            at = [float(r[x]) for r in drawn]
            y = [scale * r["mean"] for r in drawn]
            bars = [scale * (r["interval"] or 0.0) for r in drawn]
            axes.plot(at, y, lw=1.5, label=str(name), **style)
            axes.errorbar(at, y, yerr=bars, ls="", color=style["color"], lw=1, capsize=2)
        if log_x:
            axes.set_xscale("log", base=2)
        ticks = sorted({float(r[x]) for r in rows})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
        axes.set_xlabel(x.replace("_", " "))
        if panel:
            axes.set_title(f"{panel.replace('_', ' ')} {_tick(value)}", loc="left", fontsize=9)
        axes.grid(alpha=0.25)
    grid[0].set_ylabel(label)
    if len(arms) > 1:
        grid[-1].legend(edgecolor="none", framealpha=0.7, fontsize=8)
    return save_figure(figure, file)
