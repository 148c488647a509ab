"""Fusion, layer dropping, pruning and distillation together: which mix is best at a given size?"""

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.frontier import Direction, average_seeds, non_dominated
from bermo_ray.results.layer_counts import Row, median_by_depth
from bermo_ray.results.pairing import compare_in_common_cells
from bermo_ray.results.schemas import MIXES
from bermo_ray.results.significance import Predictions, compare_predictions
from bermo_ray.results.verdicts import Claim, Verdict, judge

# Smaller, better and faster, all at once; better on the half of the dev set that chooses.
OBJECTIVES: Mapping[str, Direction] = {
    "remaining": "min",
    "metric_selection": "max",
    "latency": "min",
}
# Ingredient -> the column that tells with from without it, and those that make trials alike else.
_INGREDIENTS = {
    "a teacher": ("distilled", (False, True), ("size", "layers_dropped", "fusion")),
    "BERMo": ("fusion", ("last", "bermo"), ("size", "layers_dropped", "distilled")),
    "dropping layers": ("drops", (False, True), ("size", "fusion", "distilled")),
}
_QUANTITIES = {
    "a teacher": "a teacher makes mixes better by",
    "BERMo": "BERMo is better than the last layer by",
    "dropping layers": "dropping some layers and pruning less beats pruning alone by",
}


def with_ingredients(table: pa.Table, sizes: Sequence[float]) -> pa.Table:
    """The trials with ``size``, ``distilled`` and ``drops``, whether layers were dropped.

    The size is the one nearest to what was asked for: the share of layers left times the density
    asked for in them. The model with nothing dropped or pruned has the size 1.

    Args:
        table: Trials of one task and encoder.
        sizes: Shares of the encoder's prunable weights that were asked for.
    """
    rows = table.select(["layers_left", "target_density", "trial_json"]).to_pylist()
    trials = [json.loads(row["trial_json"]) for row in rows]
    counts = [(trial["layer_drop"] or {}).get("count", 0) for trial in trials]
    depth = max((row["layers_left"] or 1 for row in rows), default=1)
    asked = [
        (1.0 if row["target_density"] is None else row["target_density"]) * (1 - count / depth)
        for row, count in zip(rows, counts, strict=True)
    ]
    columns = {
        "size": pa.array([_nearest([*sizes, 1.0], size) for size in asked], pa.float64()),
        "distilled": pa.array([trial["distillation"] is not None for trial in trials], pa.bool_()),
        "drops": pa.array([count > 0 for count in counts], pa.bool_()),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _nearest(sizes: Sequence[float], asked: float) -> float:
    return min(sizes, key=lambda size: abs(size - asked))


def mixes(
    table: pa.Table, sizes: Sequence[float], predictions: Predictions | None = None
) -> pa.Table:
    """One row for each mix that completed, by size, fusion, teacher and layers dropped.

    The best of a size, and what is on the frontier, are chosen by the mean ``metric_selection``;
    how good they are is their ``metric_reported``.

    Args:
        table: Trials of one task and encoder.
        sizes: As of :func:`with_ingredients`.
        predictions: From a run's id to its predictions; with it, mixes are tested against the best
            of their size by McNemar, on the verification half of the dev set.
    """
    merged = _with_latency_by_depth(average_seeds(with_ingredients(table, sizes)), table)
    efficient = set(non_dominated(merged, OBJECTIVES)["run_id"].to_pylist())
    rows = merged.to_pylist()
    for row in rows:
        row["on_frontier"] = row["run_id"] in efficient
    rows.sort(
        key=lambda r: (-r["size"], r["fusion"] != "last", r["distilled"], r["layers_dropped"])
    )
    for size in {row["size"] for row in rows}:
        _compare_with_best([row for row in rows if row["size"] == size], predictions)
    selected = [{name: row.get(name) for name in MIXES.names} for row in rows]
    return pa.Table.from_pylist(selected, schema=MIXES)


def _with_latency_by_depth(merged: pa.Table, table: pa.Table) -> pa.Table:
    latencies = median_by_depth(table.to_pylist(), "latency", "backbone", "fusion")
    keys = merged.select(["backbone", "fusion", "layers_left"]).to_pylist()
    known = [latencies.get(tuple(row.values())) for row in keys]
    column = merged.schema.get_field_index("latency")
    return merged.set_column(column, "latency", pa.array(known, pa.float64()))


def _compare_with_best(rows: Sequence[Row], predictions: Predictions | None) -> None:
    """Marks the best mix of a size and tests the others against it."""
    best = max(rows, key=lambda row: row["metric_selection"])
    for row in rows:
        row["best"] = row is best
        row["p_value"] = None
        if row is not best and predictions is not None:
            tables = [predictions(mix["run_id"]) for mix in (best, row)]
            row["p_value"] = compare_predictions(*tables)


def judge_ingredients(table: pa.Table, sizes: Sequence[float], where: str) -> list[Verdict]:
    """What each ingredient is worth at equal size: the mean over all mixes of the others, of each
    seed, with it against without it. No paper asked, so the claims are ours.

    Args:
        table: Trials of one task and encoder.
        sizes: As of :func:`with_ingredients`.
        where: Task and encoder, in words.
    """
    trials = with_ingredients(table, sizes)
    trials = trials.filter(pc.less(trials["size"], 1.0))
    verdicts = []
    for name, (arm, (without, with_it), alike) in _INGREDIENTS.items():
        claim = Claim(
            f"at the same size, {name} helps",
            source="ours",
            quantity=f"at the same size, {_QUANTITIES[name]}",
        )
        verdicts.append(
            judge(claim, where, compare_in_common_cells, trials, arm, without, with_it, alike)
        )
    return verdicts


def describe_frontier(mixes: pa.Table, table: pa.Table) -> list[str]:
    """Which ingredients are in the mixes on the frontier, and how many trials are in no mix, in
    lines.

    Args:
        mixes: From :func:`mixes`.
        table: The trials that they are of.
    """
    rows = mixes.to_pylist()
    front = [row for row in rows if row["on_frontier"]]
    counts = {
        "BERMo": sum(row["fusion"] == "bermo" for row in front),
        "a teacher": sum(row["distilled"] for row in front),
        "dropped layers": sum(row["layers_dropped"] > 0 for row in front),
        "pruned weights": sum(row["target_density"] is not None for row in front),
    }
    parts = ", ".join(f"{name} in {count}" for name, count in counts.items())
    lines = [f"{len(front)} of {len(rows)} mixes are on the frontier: {parts}"]
    if lost := table.num_rows - sum(row["seeds"] for row in rows):
        lines.append(f"{lost} of {table.num_rows} trials did not complete and are in no mean")
    return lines
