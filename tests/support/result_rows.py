"""Rows of the results table, made by hand."""

from typing import Any

import pyarrow as pa

from bermo_ray.results import SCHEMA
from bermo_ray.trial import LayerDrop, Pruning, Trial

LAYERS = 12


def dropped_row(
    dropped: int,
    metric: float,
    halves: tuple[float, float] = (0, 0),
    *,
    seed: int = 0,
    pruning: Pruning | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A completed trial of a twelve-layer encoder without its top layers; ``halves`` are the
    metrics for selection and verification."""
    drop = LayerDrop(strategy="top", count=dropped) if dropped else None
    trial, left = Trial(layer_drop=drop, seed=seed, pruning=pruning), LAYERS - dropped
    return {
        "task": "tense", "backbone": "b", "fusion": "last", "method": "dense",
        "status": "completed", "strategy": "top" if dropped else None, "seed": seed,
        "layers_dropped": dropped, "layers_left": left,
        "dropped_layers": list(range(left + 1, LAYERS + 1)),
        "metric": metric, "metric_selection": halves[0], "metric_verification": halves[1],
        "parameters": 110 - 7 * dropped, "remaining": left / LAYERS,
        "rows_per_second": 10.0 / left, "latency": 0.1 * left,
        "run_id": f"{dropped}-{seed}", "recipe": trial.recipe, "trial_json": trial.to_json(),
        "target_density": getattr(pruning, "target_density", None),
    } | changes  # fmt: skip


def result_table(*rows: dict[str, Any]) -> pa.Table:
    """The rows with the results' schema; nulls for what they lack."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def points(*rows: tuple[float, float], **columns: Any) -> pa.Table:
    """(remaining, metric) of completed trials of one group; each is a recipe."""
    base = {"task": "t", "backbone": "b", "method": "l0", "fusion": "last", "status": "completed"}
    return result_table(
        *(
            base | {"remaining": r, "metric": m, "recipe": str(i), "seed": 0} | columns
            for i, (r, m) in enumerate(rows)
        )
    )


def seeded(rows: list[tuple[str, int, float, float]], **columns: Any) -> pa.Table:
    """(recipe, seed, remaining, metric) of completed trials."""
    base = {"status": "completed"} | columns
    return result_table(
        *(base | {"recipe": n, "seed": s, "remaining": r, "metric": m} for n, s, r, m in rows)
    )


def predictions_table(wrong: set[int], rows: int = 100) -> pa.Table:
    """A trial's predictions, right but for these rows; odd rows verify."""
    right = [row not in wrong for row in range(rows)]
    return pa.table(
        {"row": range(rows), "right": right, "verifies": [row % 2 == 1 for row in range(rows)]}
    )
