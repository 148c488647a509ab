"""The shell around studies."""

import pyarrow as pa

from bermo_ray.search.grid import Grid
from bermo_ray.study import in_plan_order
from bermo_ray.trial import Trial


def test_rows_of_a_grid_come_as_it_lists_its_trials() -> None:
    trials = [Trial(seed=seed) for seed in (2, 0, 1)]
    started = pa.table({"trial_id": [trials[i].id for i in (1, 2, 0)], "seed": [0, 1, 2]})
    assert in_plan_order(started, Grid(trials))["seed"].to_pylist() == [2, 0, 1]
