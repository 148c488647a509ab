"""What came out: ``load(study)`` gives the table, ``frontier(table)`` its efficient trials,
``metric_at_sizes(table, sizes)`` what seeds reach on average, ``compare_arms(table)`` how many
times fewer weights one fusion needs than another, ``predictions(trial)`` what one trial answered on
the dev set, ``layer_counts(table, thresholds)`` how many layers each task can spare, ``query(sql,
trials=table)`` runs SQL over them."""

from bermo_ray.record import SCHEMA
from bermo_ray.results.comparison import (
    compare_areas,
    compare_arms,
    efficiency,
    metric_at_sizes,
    remaining_at_levels,
)
from bermo_ray.results.curves import remaining_at
from bermo_ray.results.frontier import average_seeds, frontier, hypervolume, non_dominated
from bermo_ray.results.layer_counts import layer_counts, layer_losses
from bermo_ray.results.means import (
    mean_over_seeds,
    select,
    values_by_seed,
    with_metric,
    with_settings,
)
from bermo_ray.results.published import hyperparameters, published, published_values
from bermo_ray.results.significance import mcnemar
from bermo_ray.results.table import load, load_all, predictions, predictions_of, query
from bermo_ray.results.verdicts import (
    Claim,
    Estimate,
    Verdict,
    compare_by_seed,
    compare_means,
    compare_ratio,
    compare_shares,
    estimate_share,
    judge,
)

__all__ = [
    "SCHEMA",
    "Claim",
    "Estimate",
    "Verdict",
    "average_seeds",
    "compare_areas",
    "compare_arms",
    "compare_by_seed",
    "compare_means",
    "compare_ratio",
    "compare_shares",
    "efficiency",
    "estimate_share",
    "frontier",
    "hyperparameters",
    "hypervolume",
    "judge",
    "layer_counts",
    "layer_losses",
    "load",
    "load_all",
    "mcnemar",
    "mean_over_seeds",
    "metric_at_sizes",
    "non_dominated",
    "predictions",
    "predictions_of",
    "published",
    "published_values",
    "query",
    "remaining_at",
    "remaining_at_levels",
    "select",
    "values_by_seed",
    "with_metric",
    "with_settings",
]
