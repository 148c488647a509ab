"""Every seed of an arm by itself: in a terminal of 80 columns, as dots, and as a curve."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure
from rich.table import Table

from bermo_ray.record import Status
from bermo_ray.results.figures import line_style, save_figure
from bermo_ray.results.means import REPORTED, completed, mean_over_seeds, select
from bermo_ray.results.stability import measure_stability

_DODGE = 0.16  # of the way from seed to seed, between the dots of two arms
Cells = Mapping[tuple[Any, int], tuple[Status, float | None]]  # by (arm, seed)


def seeds_table(
    title: str, table: pa.Table, arm: str, published: pa.Table | None = None, scale: float = 100.0
) -> Table:
    """Each seed's value, or how it ended without one, a column for each arm; below them how many
    diverged, with the 95 % interval of their share, and mean and deviation of the others.

    Args:
        title: Says what the numbers are.
        table: Trials of one task and encoder.
        arm: The column whose values are the arms.
        published: The paper's runs with the columns seed, ``arm``, status and metric_reported;
            beside ours where they have the same seed.
        scale: What values are multiplied by: 100 for per cent.
    """
    sources = {"": table} if published is None else {"": table, "paper:\n": published}
    columns = [(head, name) for head, rows in sources.items() for name in _arms(rows, arm)]
    cells = {head: _read_cells(rows, arm) for head, rows in sources.items()}
    view = Table(title=title, box=None, title_justify="left", title_style="bold", padding=(0, 1))
    view.add_column("seed")
    for head, name in columns:
        view.add_column(f"{head}{name}", justify="right")
    for seed in dict.fromkeys(table["seed"].to_pylist()):
        texts = [_cell(cells[head].get((name, seed)), scale) for head, name in columns]
        view.add_row(str(seed), *texts)
    view.add_section()
    summaries = [
        _summarize(row, scale)
        for rows in sources.values()
        for row in measure_stability(rows, (arm,)).to_pylist()
    ]
    for label in ("diverged", "  95 %", "mean", "deviation"):
        view.add_row(label, *(summary[label] for summary in summaries))
    return view


def _arms(table: pa.Table, arm: str) -> list[Any]:
    return list(dict.fromkeys(table[arm].to_pylist()))


def _read_cells(table: pa.Table, arm: str) -> Cells:
    columns = (table[name].to_pylist() for name in (arm, "seed", "status", REPORTED))
    return {
        (name, seed): (Status(text), value)
        for name, seed, text, value in zip(*columns, strict=True)
    }


def _cell(cell: tuple[Status, float | None] | None, scale: float) -> str:
    if cell is None:
        return ""
    status, value = cell
    if status is Status.COMPLETED and value is not None:
        return f"{scale * value:.2f}"
    return "diverges" if status is Status.DIVERGED else str(status)


def _summarize(row: Mapping[str, Any], scale: float) -> dict[str, str]:
    def number(name: str) -> str:
        return "" if row[name] is None else f"{scale * row[name]:.2f}"

    ends = "" if row["low"] is None else f"{100 * row['low']:.0f} to {100 * row['high']:.0f} %"
    counts = f"{row['diverged']} of {row['ended']}"
    values = {"mean": number("mean"), "deviation": number("deviation")}
    return {"diverged": counts, "  95 %": ends} | values


def seeds_figure(
    table: pa.Table, arm: str, label: str, file: Path, title: str = "", scale: float = 100.0
) -> Path:
    """A dot for each seed of each arm, a line at each arm's mean, and crosses in a band of their
    own for runs that diverged, to a PNG and an SVG; arguments as of :func:`seeds_table`."""
    arms, cells = _arms(table, arm), _read_cells(table, arm)
    seeds = list(dict.fromkeys(table["seed"].to_pylist()))
    values = {
        key: scale * value
        for key, (status, value) in cells.items()
        if status is Status.COMPLETED and value is not None
    }
    low, high = min(values.values(), default=0.0), max(values.values(), default=1.0)
    step = 0.08 * (high - low) or 0.01 * scale
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(arms):
        style, offset = line_style(index), _DODGE * (index - (len(arms) - 1) / 2)
        drawn = [(seeds.index(seed) + offset, values[n, seed]) for n, seed in values if n == name]
        mean = sum(y for _, y in drawn) / len(drawn) if drawn else None
        axes.plot(*zip(*drawn, strict=True) if drawn else ([], []), ls="", label=name, **style)
        if mean is not None:
            axes.axhline(mean, color=style["color"], lw=1, ls="--", alpha=0.6)
        lost = [seed for (n, seed), (status, _) in cells.items() if n == name and _diverged(status)]
        x = [seeds.index(seed) + offset for seed in lost]
        crosses = style | {"marker": "x", "ms": 7}
        axes.plot(x, [low - 2 * step] * len(x), ls="", mew=2, **crosses)
    if any(_diverged(status) for status, _ in cells.values()):
        axes.axhspan(low - 3 * step, low - step, color="0.93", zorder=0)
        # The band is no part of the scale.
        axes.set_yticks([tick for tick in axes.get_yticks() if low - step < tick <= high + step])
        axes.set_ylim(low - 3 * step, high + step)
        axes.text(len(seeds) - 0.5, low - 2 * step, "diverges ", ha="right", va="center", size=8)
    axes.set_xticks(range(len(seeds)), [str(seed) for seed in seeds])
    axes.set_xlim(-0.5, len(seeds) - 0.5)
    axes.set_xlabel("seed")
    axes.set_ylabel(label)
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(edgecolor="none", framealpha=0.7, fontsize=8)
    return save_figure(figure, file)


def curves_figure(
    table: pa.Table, x: str, arm: str, label: str, file: Path, panel: str, scale: float = 100.0
) -> Path:
    """The mean over seeds along ``x`` for each arm, each seed's own curve faint behind it, and a
    panel for each value of ``panel``, to a PNG and an SVG. A run that diverged is no point of a
    curve."""
    panels = list(dict.fromkeys(table[panel].to_pylist()))
    figure = Figure(figsize=(1 + 4 * len(panels), 3.8), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, value in zip(grid, panels, strict=True):
        rows = select(table, **{panel: value})
        for index, name in enumerate(_arms(table, arm)):
            style, trials = line_style(index), completed(select(rows, **{arm: name}))
            for seed in dict.fromkeys(trials["seed"].to_pylist()):
                curve = select(trials, seed=seed).sort_by(x)
                y = scale * curve[REPORTED].to_numpy()
                axes.plot(curve[x].to_numpy(), y, lw=0.8, alpha=0.45, **style | {"ms": 2})
            means = mean_over_seeds(trials, (x,)).sort_by(x)
            y = scale * means["mean"].to_numpy()
            axes.plot(means[x].to_numpy(), y, lw=2, label=str(name), **style)
        axes.set_xticks(sorted(set(rows[x].to_pylist())))
        axes.set_xlabel(x.replace("_", " "))
        axes.set_title(f"{value}: seeds and their mean", loc="left", fontsize=9)
        axes.grid(alpha=0.25)
    grid[0].set_ylabel(label)
    grid[-1].legend(edgecolor="none", framealpha=0.7, fontsize=8)
    return save_figure(figure, file)


def _diverged(status: Status) -> bool:
    return status is Status.DIVERGED
