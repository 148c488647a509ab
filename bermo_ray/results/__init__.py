"""What came out: ``load(study)`` gives the table, ``frontier(table)`` its efficient trials."""

from bermo_ray.results.frontier import frontier
from bermo_ray.results.table import SCHEMA, load

__all__ = ["SCHEMA", "frontier", "load"]
