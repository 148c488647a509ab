"""What came out: ``load(study)`` gives the table, ``frontier(table)`` its efficient trials,
``predictions(trial)`` what one of them answered on the dev set, ``layer_counts(table, thresholds)``
how many layers each task can spare, ``query(sql, trials=table)`` runs SQL over them."""

from bermo_ray.record import SCHEMA
from bermo_ray.results.comparison import efficiency
from bermo_ray.results.frontier import (
    average_seeds,
    frontier,
    hypervolume,
    keep_most_seeds,
    non_dominated,
    remaining_at,
)
from bermo_ray.results.layer_counts import layer_counts, layer_losses
from bermo_ray.results.significance import mcnemar
from bermo_ray.results.table import load, load_all, predictions, query

__all__ = [
    "SCHEMA",
    "average_seeds",
    "efficiency",
    "frontier",
    "hypervolume",
    "keep_most_seeds",
    "layer_counts",
    "layer_losses",
    "load",
    "load_all",
    "mcnemar",
    "non_dominated",
    "predictions",
    "query",
    "remaining_at",
]
