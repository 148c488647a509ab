"""Layer dropping and pruning together: which mix is best at a given size?"""

import json

import numpy as np
import pyarrow as pa

from bermo_ray.results.frontier import non_dominated, over_seeds
from bermo_ray.results.layer_counts import Predictions, Row, by_depth
from bermo_ray.results.significance import mcnemar, right
from bermo_ray.tasks import registry

# Smaller, better and faster, all at once.
OBJECTIVES = {"remaining": "min", "metric": "max", "latency": "min"}
MIXES = pa.schema([
    pa.field(name, kind, metadata={"meaning": meaning})
    for name, kind, meaning in (
        ("size", pa.float64(), "share of the encoder's prunable weights asked for"),
        ("count", pa.int64(), "layers dropped"),
        ("target", pa.float64(), "density asked for in the layers left; null: not pruned"),
        ("remaining", pa.float64(), "share of the encoder's parameters left, mean over seeds"),
        ("metric", pa.float64(), "mean over seeds"),
        ("metric_sd", pa.float64(), "over seeds; null of one"),
        ("latency", pa.float64(), "seconds of a dense forward; median over trials of that depth"),
        ("seeds", pa.int64(), ""),
        ("best", pa.bool_(), "the highest mean metric of its size"),
        ("p_value", pa.float64(), "McNemar against the best of its size, first seed"),
        ("on_frontier", pa.bool_(), "no mix is smaller, better and faster at once"),
        ("run_id", pa.string(), "of the first seed"),
    )
])  # fmt: skip


def mixes(table: pa.Table, sizes: list[float], predictions: Predictions | None = None) -> pa.Table:
    """One row for each mix that completed, by size and layers dropped.

    A mix belongs to the size nearest to what it was asked for: the share of layers left times the
    density asked for in them. The whole model is the size 1.
    """
    latencies = by_depth(table.to_pylist(), "latency", "backbone")
    merged = over_seeds(table)
    place = merged.schema.get_field_index("latency")
    known = [
        latencies.get((r["backbone"], r["layers"]))
        for r in merged.select(["backbone", "layers"]).to_pylist()
    ]
    merged = merged.set_column(place, "latency", pa.array(known, pa.float64()))
    front = set(non_dominated(merged, OBJECTIVES)["run_id"].to_pylist())  # type: ignore[arg-type]
    rows = []
    depth = max(merged["layers"].to_pylist(), default=0)
    for row in merged.to_pylist():
        pruning = json.loads(row["trial"])["pruning"]
        target = pruning["target"] if pruning else None
        asked = (1.0 if target is None else target) * row["layers"] / depth
        size = min([*sizes, 1.0], key=lambda s: abs(s - asked))
        rows.append(row | {"size": size, "target": target, "on_frontier": row["run_id"] in front})
    rows.sort(key=lambda r: (-r["size"], r["count"]))
    for size in {r["size"] for r in rows}:
        own = [r for r in rows if r["size"] == size]
        best = max(own, key=lambda r: r["metric"])
        for row in own:
            row["best"] = row is best
            row["p_value"] = None if row is best else _p_value(best, row, predictions)
    kept = [{name: row.get(name) for name in MIXES.names} for row in rows]
    return pa.Table.from_pylist(kept, schema=MIXES)


def _p_value(best: Row, row: Row, predictions: Predictions | None) -> float | None:
    if predictions is None:
        return None
    task = registry.get(row["task"])
    found: list[np.ndarray] = []
    for run in (best, row):
        own = right(predictions(run["run_id"]), task)
        if own is None:
            return None
        found.append(own)
    return mcnemar(*found).p_value
