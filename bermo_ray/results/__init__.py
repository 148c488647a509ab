"""What came out: ``load(study)`` gives the table, ``frontier(table)`` its efficient trials,
``predictions(trial)`` what one of them answered on the dev set, ``layer_counts(table, thresholds)``
how many layers each task can spare."""

from bermo_ray.results.frontier import (
    efficiency,
    frontier,
    hypervolume,
    non_dominated,
    over_seeds,
    remaining_at,
)
from bermo_ray.results.layer_counts import layer_counts, layer_losses
from bermo_ray.results.significance import mcnemar
from bermo_ray.results.table import SCHEMA, load, predictions

__all__ = [
    "SCHEMA",
    "efficiency",
    "frontier",
    "hypervolume",
    "layer_counts",
    "layer_losses",
    "load",
    "mcnemar",
    "non_dominated",
    "over_seeds",
    "predictions",
    "remaining_at",
]
