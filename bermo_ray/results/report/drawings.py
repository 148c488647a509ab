"""The figures that every report can have: intervals, curves over a training, mixing weights."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bermo_ray.results.figures import line_style
from bermo_ray.results.verdicts import Verdict

MOST_PANELS = 12  # of one figure; a reader does not look at more
MOST_DOTS = 30  # trials of an arm that have a dot each
_COLUMNS = 3
_LABEL_WIDTH = 44  # characters in a line of a claim beside its interval
_BAR_WIDTH = 0.8  # of the distance between two layers, for the bars of all arms


@dataclass(frozen=True)
class TrainingCurve:
    """One trial over its training: epochs, rising, and a value at each."""

    epochs: Sequence[float]
    values: Sequence[float]


Panels = Mapping[str, Mapping[str, Sequence[TrainingCurve]]]  # by panel's title, then by arm


def intervals_figure(verdicts: Sequence[Verdict]) -> Figure | None:
    """Each estimate with its interval, the paper's number as a diamond, and a line where there is
    no effect; a panel for each unit. None where nothing was estimated."""
    estimated = [v for v in verdicts if v.value is not None]
    if not estimated:
        return None
    kinds = list(dict.fromkeys((v.unit, v.no_effect) for v in estimated))
    groups = [[v for v in estimated if (v.unit, v.no_effect) == kind] for kind in kinds]
    height = 0.9 * len(kinds) + 0.55 * len(estimated)
    figure = Figure(figsize=(7.5, max(1.6, height)), layout="constrained")
    ratios = [len(group) + 0.6 for group in groups]
    grid = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=ratios)[:, 0]
    for axes, (unit, no_effect), group in zip(grid, kinds, groups, strict=True):
        _draw_intervals(axes, group)
        axes.axvline(no_effect, color="0.4", ls="--", lw=1)
        axes.set_xlabel(f"estimate,{unit}" if unit.startswith(" ") else f"estimate, {unit}")
        axes.grid(axis="x", alpha=0.25)
    return figure


def _draw_intervals(axes: Axes, verdicts: Sequence[Verdict]) -> None:
    ours, paper = line_style(0), line_style(1)
    for height, verdict in enumerate(verdicts):
        assert verdict.value is not None
        if verdict.low is not None and verdict.high is not None:
            axes.plot([verdict.low, verdict.high], [height] * 2, color=ours["color"], lw=2)
        axes.plot(verdict.value, height, color=ours["color"], marker=ours["marker"], ms=7)
        if verdict.published is not None:
            axes.plot(verdict.published, height, "D", ms=8, mfc="none", mec=paper["color"], mew=1.5)
    names = ["\n".join(textwrap.wrap(v.claim, _LABEL_WIDTH)) for v in verdicts]
    axes.set_yticks(range(len(verdicts)), names, fontsize=8)
    axes.set_ylim(len(verdicts) - 0.5, -0.5)


def training_figure(panels: Panels, label: str, scale: float = 1.0) -> Figure:
    """A value over the epochs, a panel for each key and a line for each arm: the mean over its
    trials, and a band from the lowest to the highest of them.

    Where trials of an arm were evaluated at different epochs there is no mean of all, so that each
    is a thin line of its own.

    Args:
        panels: At most :data:`MOST_PANELS` are drawn.
        label: Of the value.
        scale: What values are multiplied by.
    """
    shown = dict(list(panels.items())[:MOST_PANELS])
    arms = list(dict.fromkeys(arm for by_arm in shown.values() for arm in by_arm))
    figure, grid = _make_panels(len(shown))
    for axes, (title, by_arm) in zip(grid, shown.items(), strict=False):
        for arm, curves in by_arm.items():
            _draw_training(axes, arm, curves, arms.index(arm), scale)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
    grid[0].set_ylabel(label)
    _add_legend(figure, grid[0], len(arms))
    return figure


def _draw_training(
    axes: Axes, arm: str, curves: Sequence[TrainingCurve], index: int, scale: float
) -> None:
    style = line_style(index) | {"ls": ("-", "--", "-.", ":")[index % 4]}
    epochs = [tuple(round(epoch, 6) for epoch in curve.epochs) for curve in curves]
    if len(set(epochs)) > 1:
        for number, curve in enumerate(curves):
            values = scale * np.array(curve.values)
            label = arm if number == 0 else None
            axes.plot(curve.epochs, values, lw=0.9, alpha=0.8, label=label, **style)
        return
    values = scale * np.array([curve.values for curve in curves])
    axes.plot(epochs[0], values.mean(axis=0), lw=1.6, label=arm, **style)
    if len(curves) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(epochs[0], low, high, color=style["color"], alpha=0.18, lw=0)


Weights = Mapping[str, Mapping[str, np.ndarray]]  # by panel's title, then arm; [trials, states]


def mixing_weights_figure(panels: Weights) -> Figure:
    """How much each state counts, embeddings (0) first: bars for the mean over trials, a dot for
    each trial, and a dashed line where all states would count alike.

    Args:
        panels: At most :data:`MOST_PANELS` are drawn.
    """
    shown = dict(list(panels.items())[:MOST_PANELS])
    arms = list(dict.fromkeys(arm for by_arm in shown.values() for arm in by_arm))
    figure, grid = _make_panels(len(shown))
    for axes, (title, by_arm) in zip(grid, shown.items(), strict=False):
        width = _BAR_WIDTH / len(arms)
        for arm, weights in by_arm.items():
            index = arms.index(arm)
            x = np.arange(weights.shape[1]) + width * (index - (len(arms) - 1) / 2)
            style = line_style(index)
            hatch = ("", "///", "...", "xxx")[index % 4]
            axes.bar(
                x, weights.mean(axis=0), width, color=style["color"], alpha=0.55, label=arm,
                hatch=hatch, edgecolor="white",
            )  # fmt: skip
            _draw_spread(axes, x, weights, style["marker"])
            axes.axhline(1 / weights.shape[1], color="0.4", ls="--", lw=1)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_xlabel("layer (0: embeddings)")
    grid[0].set_ylabel("mixing weight")
    _add_legend(figure, grid[0], len(arms))
    return figure


def _draw_spread(axes: Axes, x: np.ndarray, weights: np.ndarray, marker: str) -> None:
    """A dot for each trial or, of many, a line from the lowest to the highest."""
    if len(weights) <= MOST_DOTS:
        for trial in weights:
            axes.plot(x, trial, ls="", color="0.2", marker=marker, ms=2.5, alpha=0.7)
        return
    axes.vlines(x, weights.min(axis=0), weights.max(axis=0), color="0.2", lw=1.2)


def _make_panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels in rows of three, the surplus ones blank."""
    columns = min(_COLUMNS, count)
    rows = math.ceil(count / columns)
    size = (7 if count == 1 else 1 + 3.2 * columns, 0.6 + 2.9 * rows)
    figure = Figure(figsize=size, layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for axes in grid[count:]:
        axes.axis("off")
    return figure, grid


def _add_legend(figure: Figure, axes: Axes, arms: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if arms > 1:
        columns = 2 if max(map(len, labels), default=0) < 40 else 1
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )
