"""The shell around studies."""

from dataclasses import fields

import pyarrow as pa

from bermo_ray.command_line.parsing import describe_choices, order_options
from bermo_ray.command_line.session import describe_ends
from bermo_ray.search.grid import Grid
from bermo_ray.study import in_plan_order
from bermo_ray.trial import Trial
from tests.support.studies import load_script


def test_rows_of_a_grid_come_as_it_lists_its_trials() -> None:
    trials = [Trial(seed=seed) for seed in (2, 0, 1)]
    started = pa.table({"trial_id": [trials[i].id for i in (1, 2, 0)], "seed": [0, 1, 2]})
    assert in_plan_order(started, Grid(trials))["seed"].to_pylist() == [2, 0, 1]


def test_how_trials_ended_and_why() -> None:
    ends = [("completed", "")] * 3 + [("diverged", "loss is nan")] * 2 + [("failed", f"E{i}") for i in range(6)]  # fmt: skip # noqa: E501
    table = pa.table({"status": [s for s, _ in ends], "reason": [r for _, r in ends]})
    assert describe_ends(table) == [
        "  6 failed, 3 completed, 2 diverged",
        "  2 diverged: loss is nan",
        "  1 failed: E0",
        "  1 failed: E1",
        "  1 failed: E2",
        "  1 failed: E3",
        "  2 more: see `bermo-ray table`",
    ]
    assert describe_ends(table.slice(0, 3)) == ["  3 completed"]


def test_help_tells_first_what_people_set_most() -> None:
    options = load_script("l0_frontier").Options
    order_options(options)
    names = [field.name for field in fields(options)]
    assert names[:3] == ["task", "backbone", "fusions"]
    assert names.index("trials") < names.index("seeds") < names.index("data_dir")
    assert options(seeds=(4,)).seeds == (4,)
    assert "dwatt" in describe_choices()
