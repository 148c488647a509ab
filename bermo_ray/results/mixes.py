"""Layer dropping and pruning together: which mix is best at a given size?"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from bermo_ray.results.frontier import Direction, average_seeds, non_dominated
from bermo_ray.results.layer_counts import Row, median_by_depth
from bermo_ray.results.schemas import MIXES
from bermo_ray.results.significance import Predictions, compare_predictions

# Smaller, better and faster, all at once; better on the half of the dev set that chooses.
OBJECTIVES: Mapping[str, Direction] = {
    "remaining": "min",
    "metric_selection": "max",
    "latency": "min",
}


def mixes(
    table: pa.Table, sizes: Sequence[float], predictions: Predictions | None = None
) -> pa.Table:
    """One row for each mix that completed, by size and layers dropped.

    A mix belongs to the size nearest to what it was asked for: the share of layers left times the
    density asked for in them. The model with nothing dropped or pruned has the size 1. The best of
    a size, and what is on the frontier, are chosen by the mean ``metric_selection``; how good they
    are is their ``metric_reported``.

    Args:
        table: Trials of one task, encoder and fusion.
        sizes: Shares of the encoder's prunable weights that were asked for.
        predictions: From a run's id to its predictions; with it, mixes are tested against the best
            of their size by McNemar, on the verification half of the dev set.
    """
    merged = _with_latency_by_depth(average_seeds(table), table)
    efficient = set(non_dominated(merged, OBJECTIVES)["run_id"].to_pylist())
    rows = merged.to_pylist()
    depth = max((row["layers_left"] for row in rows), default=0)
    for row in rows:
        row["size"] = _nearest([*sizes, 1.0], _asked_size(row, depth))
        row["on_frontier"] = row["run_id"] in efficient
    rows.sort(key=lambda row: (-row["size"], row["layers_dropped"]))
    for size in {row["size"] for row in rows}:
        _compare_with_best([row for row in rows if row["size"] == size], predictions)
    selected = [{name: row.get(name) for name in MIXES.names} for row in rows]
    return pa.Table.from_pylist(selected, schema=MIXES)


def _with_latency_by_depth(merged: pa.Table, table: pa.Table) -> pa.Table:
    latencies = median_by_depth(table.to_pylist(), "latency", "backbone")
    depths = merged.select(["backbone", "layers_left"]).to_pylist()
    known = [latencies.get((row["backbone"], row["layers_left"])) for row in depths]
    column = merged.schema.get_field_index("latency")
    return merged.set_column(column, "latency", pa.array(known, pa.float64()))


def _asked_size(row: Row, depth: int) -> float:
    density = row["target_density"]
    return float((1.0 if density is None else density) * row["layers_left"] / depth)


def _nearest(sizes: Sequence[float], asked: float) -> float:
    return min(sizes, key=lambda size: abs(size - asked))


def _compare_with_best(rows: Sequence[Row], predictions: Predictions | None) -> None:
    """Marks the best mix of a size and tests the others against it."""
    best = max(rows, key=lambda row: row["metric_selection"])
    for row in rows:
        row["best"] = row is best
        row["p_value"] = None
        if row is not best and predictions is not None:
            tables = [predictions(mix["run_id"]) for mix in (best, row)]
            row["p_value"] = compare_predictions(*tables)
