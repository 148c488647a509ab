"""Rows of the results table, made by hand."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from bermo_ray.record import pick_reported_metric
from bermo_ray.results import SCHEMA
from bermo_ray.trial import LayerDrop, Pruning, Trial

LAYERS = 12


def dropped_row(
    dropped: int,
    metric: float,
    halves: tuple[float, float] | None = None,
    *,
    seed: int = 0,
    pruning: Pruning | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A completed trial of a twelve-layer encoder without its top layers; ``halves`` are the
    metrics for selection and verification, by default the same."""
    drop = LayerDrop(strategy="top", count=dropped) if dropped else None
    trial, left = Trial(layer_drop=drop, seed=seed, pruning=pruning), LAYERS - dropped
    selection, verification = halves or (metric, metric)
    return {
        "task": "tense", "backbone": "b", "fusion": "last", "method": "dense",
        "status": "completed", "strategy": "top" if dropped else None, "seed": seed,
        "layers_dropped": dropped, "layers_left": left,
        "dropped_layers": list(range(left + 1, LAYERS + 1)),
        "metric": metric, "metric_selection": selection, "metric_verification": verification,
        "parameters": 110 - 7 * dropped, "remaining": left / LAYERS,
        "rows_per_second": 10.0 / left, "latency": 0.1 * left,
        "run_id": f"{dropped}-{seed}", "recipe": trial.recipe, "trial_json": trial.to_json(),
        "target_density": getattr(pruning, "target_density", None),
    } | changes  # fmt: skip


def result_table(*rows: dict[str, Any]) -> pa.Table:
    """The rows with the results' schema; nulls for what they lack, but for ``metric_reported``."""
    complete = [{"metric_reported": pick_reported_metric(row)} | row for row in rows]
    return pa.Table.from_pylist(complete, schema=SCHEMA)


def _metrics(selection: float, reported: float | None = None) -> dict[str, float]:
    """Of a trial that has these on the two halves of the dev set; the same, if one is given."""
    verification = selection if reported is None else reported
    mean = (selection + verification) / 2
    return {"metric": mean, "metric_selection": selection, "metric_verification": verification}


def points(*rows: tuple[float, ...], **columns: Any) -> pa.Table:
    """(remaining, metric_selection, and metric_reported if that is another) of completed trials of
    one group; each is a recipe."""
    base = {"task": "t", "backbone": "b", "method": "l0", "fusion": "last", "status": "completed"}
    return result_table(
        *(
            base | {"remaining": r, "recipe": str(i), "seed": 0} | _metrics(*metrics) | columns
            for i, (r, *metrics) in enumerate(rows)
        )
    )


def seeded(rows: Iterable[tuple[Any, ...]], **columns: Any) -> pa.Table:
    """(recipe, seed, remaining, metric_selection, and metric_reported if that is another) of
    completed trials."""
    base = {"status": "completed"} | columns
    return result_table(
        *(
            base | {"recipe": name, "seed": seed, "remaining": size} | _metrics(*metrics)
            for name, seed, size, *metrics in rows
        )
    )


def predictions_table(wrong: set[int], rows: int = 100) -> pa.Table:
    """A trial's predictions, right but for these rows; every other row verifies, from 1 on."""
    numbers = range(rows)
    return pa.table({
        "row": numbers,
        "right": [row not in wrong for row in numbers],
        "verifies": [row % 2 == 1 for row in numbers],
    })  # fmt: skip
