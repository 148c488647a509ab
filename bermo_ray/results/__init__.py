"""What came out: ``load(study)`` gives the table, ``frontier(table)`` its efficient trials,
``predictions(trial)`` what one of them answered on the dev set."""

from bermo_ray.results.frontier import frontier
from bermo_ray.results.table import SCHEMA, load, predictions

__all__ = ["SCHEMA", "frontier", "load", "predictions"]
