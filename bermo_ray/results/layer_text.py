"""What dropping layers costs and saves, in a terminal of 80 columns, beside the paper's numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
from rich.table import Table

from bermo_ray.results.layer_counts import FINE_TUNED, UNDROPPED
from bermo_ray.results.published import published, published_values

Row = dict[str, Any]
_PAPER = "layer_dropping"
_NAMES = {"albert-base": "albert-base-v2"}  # the paper does not say which
_DEPTH = 12  # of the encoders in Table 3
_SIX_LAYERS = {"top": "dropped", UNDROPPED[0]: "undropped"}


def published_losses() -> dict[tuple[str, str, str, int], float]:
    """Points lost by (task, encoder, strategy, layers dropped): Tables 2 (top layers), 5 (ALBERT)
    and 7 (from a fine-tuned model, against Table 2's undropped one)."""
    keys = ("task", "backbone", "layers_dropped")
    losses = published_values(_PAPER, "T2", keys, quantity="loss")
    told = {(task, name, "top", dropped): v for (task, name, dropped), v in losses.items()}
    metrics = {
        (row["task"], _NAMES.get(row["backbone"], row["backbone"]), row["layers_dropped"]): (
            row["value"]
        )
        for table in ("T2", "T5")
        for row in published(_PAPER, table).to_pylist()
        if row["quantity"] in ("accuracy", "spearman")
    }
    for (task, name, dropped), metric in metrics.items():
        if dropped:
            loss = metrics[task, name, 0] - metric
            told.setdefault((task, name, "top", dropped), round(loss, 2))
    for row in published(_PAPER, "T7").to_pylist():
        if row["method"] == "warm_start":
            key = (row["task"], row["backbone"], f"top{FINE_TUNED}", row["layers_dropped"])
            told[key] = round(metrics[row["task"], row["backbone"], 0] - row["value"], 2)
    return told


def losses_tables(losses: pa.Table) -> list[Table]:
    """Points lost by strategy and number of layers, a rich table for each encoder (layer dropping,
    Table 2): ± half of the 95 % interval, a star where McNemar's p < 0.05, and below them what the
    paper has.

    Args:
        losses: From :func:`bermo_ray.results.layer_losses`.
    """
    rows = losses.to_pylist()
    encoders = dict.fromkeys(row["backbone"] for row in rows)
    return [_losses_table(name, [r for r in rows if r["backbone"] == name]) for name in encoders]


def _losses_table(backbone: str, rows: list[Row]) -> Table:
    encoder, told = Path(backbone).name, published_losses()
    counts = sorted({row["layers_dropped"] for row in rows} - {0})
    table = _plain_table(f"Points lost without layers of {encoder}")
    table.add_column("task and strategy", no_wrap=True)
    for count in counts:
        table.add_column(f"{count} dropped", justify="right")
    for task in dict.fromkeys(row["task"] for row in rows):
        lines: dict[str, dict[int, Row]] = {}
        for row in rows:
            if row["task"] == task:
                lines.setdefault(row["strategy"], {})[row["layers_dropped"]] = row
        (undropped,) = lines.pop(UNDROPPED[0]).values()
        table.add_row(f"{task}, undropped {100 * undropped['metric_reported']:.2f}")
        for strategy, cells in lines.items():
            name = f"  {strategy}{': none' if 0 in cells else ''}"  # no layer is so similar
            table.add_row(name, *(_loss_cell(cells.get(count)) for count in counts))
            paper = [told.get((task, encoder, strategy, count)) for count in counts]
            if any(value is not None for value in paper):
                table.add_row("    in the paper", *map(_paper_cell, paper))
        table.add_section()
    return table


def _paper_cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} "


def _loss_cell(row: Row | None) -> str:
    if row is None:
        return ""
    half_width = ""
    if row["loss_low"] is not None:
        half_width = f" ±{(row['loss_high'] - row['loss_low']) / 2:.2f}"
    loss = round(row["loss"], 2) + 0.0  # never -0.00
    return f"{loss:.2f}{half_width}{'*' if row['significant'] else ' '}"


def describe_losses(losses: pa.Table) -> list[str]:
    """What a star in the tables means, and which strategies are one model, in lines."""
    return [*_describe_tests(losses), *_describe_twins(losses)]


def _describe_twins(losses: pa.Table) -> list[str]:
    """Strategies that drop the same half of an encoder's layers for all of its tasks, so that they
    are one model."""
    layers: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for row in losses.to_pylist():
        by_count = " > " not in row["strategy"] and FINE_TUNED not in row["strategy"]
        if by_count and row["layers_dropped"] == row["layers_left"]:
            key = (row["backbone"], row["strategy"])
            layers.setdefault(key, []).append(tuple(row["dropped_layers"]))
    twins: dict[Any, list[str]] = {}
    for (backbone, strategy), dropped in layers.items():
        twins.setdefault((backbone, *dropped), []).append(strategy)
    return [
        f"{Path(backbone).name}: {', '.join(names)} drop the same half of the layers"
        for (backbone, *_), names in twins.items()
        if len(names) > 1
    ]


def _describe_tests(losses: pa.Table) -> list[str]:
    seeds = sorted({seed for seed in losses["p_seed"].to_pylist() if seed is not None})
    if not seeds:
        return []
    which = ", ".join(map(str, seeds))
    return [
        f"*: other answers on dev than the undropped model's (McNemar, p < 0.05, both of seed "
        f"{which}; each test by itself)"
    ]


def savings_tables(losses: pa.Table, times: pa.Table, strategy: str = "top") -> list[Any]:
    """What one strategy costs and saves on the mean over tasks, as a rich table (layer dropping,
    Table 3), beside the paper's numbers of that encoder or, where it has none, of BERT without the
    same share of its layers; a line on how time was measured; :func:`rivals_table`, if there is
    one."""
    table = _plain_table(f"{strategy.capitalize()} layers dropped, mean over tasks")
    names = ("points\nlost", "weights\nsaved", "training\nspeed", "inference\ntime saved")
    for name in ("encoder", "layers\ndropped", *names):
        table.add_column(name, justify="left" if name == "encoder" else "right")
    told = _published_savings()
    for row in average_savings(losses, strategy):
        encoder, depth = Path(row["backbone"]).name, row["depth"]
        table.add_row(encoder, f"{row['layers_dropped']} of {depth}", *_savings_cells(row))
        share = row["layers_dropped"] * _DEPTH / depth
        name = encoder if (encoder, share) in told else "bert-base-uncased"
        if (name, share) in told:
            paper = f"  paper: {name}"
            table.add_row(paper, f"{share:g} of {_DEPTH}", *_savings_cells(told[name, share]))
    rivals = rivals_table(losses)
    return [table, *_describe_times(times), *([rivals] if rivals else [])]


def _describe_times(times: pa.Table) -> list[str]:
    """Which rows the time of inference was measured on, a line for each task and number of rows."""
    kinds: dict[tuple[str, int], set[int]] = {}
    for row in times.to_pylist():
        kinds.setdefault((row["task"], row["rows"]), set()).add(row["round"])
    return [
        f"inference on {rows} dev rows of {task} in batches of 32, median of {len(rounds)} rounds"
        for (task, rows), rounds in kinds.items()
    ]


def average_savings(losses: pa.Table, strategy: str = "top") -> list[Row]:
    """A row for each encoder and number of layers dropped, with the means over tasks; a number that
    not all tasks have is left out."""
    rows = losses.to_pylist()
    depths = {r["backbone"]: r["layers_left"] for r in rows if r["strategy"] == UNDROPPED[0]}
    savings = []
    for backbone, depth in depths.items():
        of_encoder = [row for row in rows if row["backbone"] == backbone]
        tasks = {row["task"] for row in of_encoder}
        for count in sorted({row["layers_dropped"] for row in of_encoder} - {0}):
            chosen = [
                row for row in of_encoder
                if row["strategy"] == strategy and row["layers_dropped"] == count
            ]  # fmt: skip
            if len(chosen) == len(tasks):
                means = {
                    name: _mean(row[name] for row in chosen)
                    for name in ("loss", "saved", "train_speedup", "time_saved")
                }
                about = {"backbone": backbone, "depth": depth, "layers_dropped": count}
                savings.append(about | means)
    return savings


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _savings_cells(row: Mapping[str, Any]) -> list[str]:
    forms = {"loss": ".2f", "saved": ".0%", "train_speedup": ".2f", "time_saved": ".0%"}
    units = {"train_speedup": "×"}
    return [
        "" if row[name] is None else format(round(row[name], 4) + 0.0, form) + units.get(name, "")
        for name, form in forms.items()
    ]


def _published_savings() -> dict[tuple[str, float], Row]:
    """Table 3 by encoder and layers dropped, under the names of :func:`average_savings`."""
    keys = ("backbone", "layers_dropped", "quantity")
    told = published_values(_PAPER, "T3", keys)
    return {
        (backbone, float(dropped)): {
            "loss": told[backbone, dropped, "loss"],
            "saved": 1 - told[backbone, dropped, "parameters"] / told[backbone, 0, "parameters"],
            "train_speedup": told[backbone, dropped, "speedup"],
            "time_saved": told[backbone, dropped, "inference_time_saved"],
        }
        for backbone, dropped, quantity in told
        if quantity == "loss" and dropped
    }


def rivals_table(losses: pa.Table) -> Table | None:
    """Models of six layers: without half of their top ones, beside other ways that the paper
    compares with (layer dropping, Table 6), as a rich table; None where no encoder and task is
    Table 6's."""
    told = published(_PAPER, "T6").to_pylist()
    tasks = list(dict.fromkeys(row["task"] for row in told))
    encoders = {row["backbone"] for row in told}
    lines: dict[tuple[str, str], dict[str, float | None]] = {}
    for row in losses.to_pylist():
        encoder = Path(row["backbone"]).name
        known = encoder in encoders and row["task"] in tasks and row["layers_left"] == _DEPTH // 2
        if known and row["strategy"] in ("top", UNDROPPED[0]):
            way = _SIX_LAYERS[row["strategy"]]
            lines.setdefault((encoder, way), {})[row["task"]] = 100 * row["metric_reported"]
    if not lines:
        return None
    for row in told:
        way = _SIX_LAYERS.get(row["strategy"] or "") or row["method"].replace("_", " ")
        if row["method"] == "layer_dropout_pretrained":
            way = "layer dropout, then dropped"
        lines.setdefault((row["backbone"], f"{way}, paper"), {})[row["task"]] = row["value"]
    table = _plain_table("Six layers, by dropping the top ones and by other ways")
    for name in ("encoder", "way", *tasks):
        table.add_column(name, justify="left" if name in ("encoder", "way") else "right")
    for (encoder, way), values in sorted(lines.items()):
        table.add_row(encoder, way, *_points(values, tasks))
    return table


def _points(values: Mapping[str, float | None], tasks: list[str]) -> list[str]:
    return ["" if (v := values.get(task)) is None else f"{v:.2f}" for task in tasks]


def _plain_table(title: str) -> Table:
    return Table(
        title=title,
        box=None,
        title_justify="left",
        title_style="bold",
        padding=(0, 1),
        min_width=len(title),
    )
