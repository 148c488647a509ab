"""Columns out of settings, and means over seeds."""

import math

import pytest
from scipy.stats import t

from bermo_ray.errors import UserError
from bermo_ray.results.means import (
    mean_over_seeds,
    select,
    values_by_seed,
    with_metric,
    with_settings,
)
from bermo_ray.trial import Trial
from tests.support.result_rows import result_table


def table_of(*values: tuple[str, int, float | None, str]) -> object:
    return result_table(
        *(
            {"fusion": fusion, "task": "x", "seed": seed, "metric": metric, "status": status}
            for fusion, seed, metric, status in values
        )
    )


def test_means_leave_diverged_trials_out_and_count_them() -> None:
    table = table_of(
        ("last", 0, 0.5, "completed"), ("bermo", 0, 0.9, "completed"),
        ("last", 1, 0.7, "completed"), ("bermo", 1, 0.1, "diverged"),
        ("last", 2, None, "failed"), ("mean", 0, 0.5, "diverged"),
    )  # fmt: skip
    last, bermo, mean = mean_over_seeds(table, ("fusion",)).to_pylist()
    assert (last["seeds"], last["diverged"]) == (2, 0)
    assert last["mean"] == pytest.approx(0.6)
    assert last["deviation"] == pytest.approx(0.1 * math.sqrt(2))
    assert last["interval"] == pytest.approx(t.ppf(0.975, 1) * 0.1)
    assert bermo == {
        "fusion": "bermo", "seeds": 1, "diverged": 1, "mean": 0.9, "deviation": None,
        "interval": None,
    }  # fmt: skip
    assert (mean["mean"], mean["seeds"], mean["diverged"]) == (None, 0, 1)


def test_settings_and_metrics_become_columns() -> None:
    trials = [
        Trial(seed=1).replace(data={"shots": 8}, fusion={"mixed_states": [0, 2]}),
        Trial(pruning={"method": "l0"}),  # type: ignore[arg-type]
    ]
    table = result_table(
        *(
            {"trial_json": trial.to_json(), "other_metrics": [("f1", score)] if score else []}
            for trial, score in zip(trials, (0.5, None), strict=True)
        )
    )
    columns = with_settings(
        table, shots="data.shots", states="fusion.mixed_states", method="pruning.method", odd="a.b"
    )
    rows = with_metric(columns, "f1").to_pylist()
    assert [row["method"] for row in rows] == [None, "l0"]  # in place of the results' own
    assert [row["shots"] for row in rows] == [8, None]
    assert [row["states"] for row in rows] == ["[0, 2]", None]
    assert [row["odd"] for row in rows] == [None, None]
    assert [row["f1"] for row in rows] == [0.5, None]


def test_rows_are_selected_by_values_and_by_null() -> None:
    table = table_of(("last", 0, 0.5, "completed"), ("bermo", 0, None, "failed"))
    assert select(table, fusion="bermo", metric=None).num_rows == 1
    assert select(table, fusion="bermo", metric=0.5).num_rows == 0
    with pytest.raises(UserError, match="^select: no column 'fusoin'"):
        select(table, fusoin="last")


def test_a_seed_counts_once_all_of_its_tasks_completed() -> None:
    rows = [("x", 0, 0.2), ("y", 0, 0.4), ("x", 1, 0.9)]
    table = result_table(
        *(
            {"task": task, "backbone": "b", "seed": seed, "metric": metric, "status": "completed"}
            for task, seed, metric in rows
        )
    )
    assert values_by_seed(table) == {0: pytest.approx(0.3)}
    assert values_by_seed(table, over=()) == {0: pytest.approx(0.3), 1: 0.9}
