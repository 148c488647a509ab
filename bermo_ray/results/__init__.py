"""What came out: ``load(study)`` gives the table, ``frontier(table)`` its efficient trials,
``predictions(trial)`` what one of them answered on the dev set, ``layer_counts(table, thresholds)``
how many layers each task can spare, ``query(sql, trials=table)`` runs SQL over them."""

from bermo_ray.results.frontier import (
    efficiency,
    frontier,
    hypervolume,
    non_dominated,
    over_seeds,
    remaining_at,
    with_most_seeds,
)
from bermo_ray.results.layer_counts import layer_counts, layer_losses
from bermo_ray.results.significance import mcnemar
from bermo_ray.results.table import SCHEMA, load, load_all, predictions, query

__all__ = [
    "SCHEMA",
    "efficiency",
    "frontier",
    "hypervolume",
    "layer_counts",
    "layer_losses",
    "load",
    "load_all",
    "mcnemar",
    "non_dominated",
    "over_seeds",
    "predictions",
    "query",
    "remaining_at",
    "with_most_seeds",
]
