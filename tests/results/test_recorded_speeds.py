"""The speed of trials that are like one that is to be run."""

from typing import Any

import pyarrow as pa

from bermo_ray.results.recorded_speeds import find_recorded_speed
from bermo_ray.trial import L0, Trial
from tests.support.result_rows import result_table

CPU = "1 × 1 thread(s) of a CPU"
GPU = "1 × an accelerator"


def row(trial: Trial, speed: float, seconds: float | None = 20.0, **changes: Any) -> dict[str, Any]:
    """A trial of 50 steps."""
    return {
        "task": trial.data.task, "backbone": trial.backbone, "batch_size": trial.batch_size,
        "method": trial.pruning.method if trial.pruning else "dense", "mode": trial.mode,
        "status": "completed", "workers": 1, "hardware": CPU, "step": 50,
        "rows_per_second": speed, "seconds": seconds, "trial_json": trial.to_json(),
    } | changes  # fmt: skip


def speed_of(table: pa.Table, trial: Trial, hardware: str | None = CPU) -> float | None:
    found = find_recorded_speed(table, trial, 1, hardware)
    return None if found is None else found.rows_per_second


def test_the_median_of_trials_like_it() -> None:
    trial = Trial(batch_size=10)
    table = result_table(*(row(trial, speed) for speed in (100.0, 50.0, 400.0)))
    found = find_recorded_speed(table, trial, 1, CPU)
    assert found is not None
    # Besides 500 rows of steps they took 20 − 5, 20 − 10 and 20 − 1.25 s.
    assert (found.rows_per_second, found.other_seconds, found.trials) == (100.0, 15.0, 3)


def test_only_trials_like_it_count() -> None:
    trial = Trial()
    for changed in (
        trial.replace(data="number"),
        trial.replace(data={"max_length": 64}),
        trial.replace(backbone="other"),
        trial.replace(batch_size=8),
        trial.replace(mode="features"),
        trial.replace(pruning=L0()),
    ):
        assert speed_of(result_table(row(changed, 100.0)), trial) is None
    for change in (
        {"workers": 2},
        {"hardware": GPU},
        {"hardware": None},
        {"status": "failed"},
        {"rows_per_second": None},
    ):
        assert speed_of(result_table(row(trial, 100.0, **change)), trial) is None
    alike = trial.replace(seed=4, epochs=9, fusion="bermo", data={"train_rows": 10})
    assert speed_of(result_table(row(alike, 100.0, status="diverged")), trial) == 100.0


def test_gpus_of_an_unknown_kind() -> None:
    trial = Trial()
    assert speed_of(result_table(row(trial, 100.0)), trial, None) is None
    assert speed_of(result_table(row(trial, 900.0, hardware=GPU)), trial, None) == 900.0


def test_a_trial_without_an_end_says_how_fast_it_was() -> None:
    trial = Trial()
    found = find_recorded_speed(result_table(row(trial, 100.0, seconds=None)), trial, 1, CPU)
    assert found is not None
    assert (found.rows_per_second, found.other_seconds) == (100.0, 0.0)
