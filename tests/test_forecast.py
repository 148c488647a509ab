"""What a study will need: arithmetic over what its trials need."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bermo_ray import forecast
from bermo_ray.errors import UserError
from bermo_ray.forecast import Workload, count_concurrent, forecast_disk, forecast_time
from bermo_ray.record import SCHEMA
from bermo_ray.training.needs import TrialNeeds
from bermo_ray.training.reporter import Resources
from bermo_ray.training.speed import Speed, describe_hardware_here
from bermo_ray.trial import L0, Trial
from tests.results.test_recorded_speeds import row
from tests.support.result_rows import result_table

EMPTY = SCHEMA.empty_table()
DENSE, PRUNED = Trial(), Trial(pruning=L0())
# Dense trials: 10 kB, running 30 kB, 1000 rows trained, 300 evaluated; pruned ones are larger.
NEEDS = {
    None: TrialNeeds(10_000, 30_000, 100, 3, 1000, 300),
    "l0": TrialNeeds(20_000, 50_000, 200, 3, 2000, 300),
}


@pytest.fixture(autouse=True)
def _known_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate(trials: tuple[Trial, ...], workers: int) -> list[TrialNeeds]:
        return [NEEDS[trial.pruning and trial.pruning.method] for trial in trials]

    monkeypatch.setattr(forecast, "estimate_needs", estimate)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """The trials that were measured: 100 rows/s of training, 200 of evaluation, 2 s to start."""
    trials: list[Trial] = []

    def measure(trial: Trial, resources: Resources) -> Speed:
        trials.append(trial)
        return Speed(100.0, 200.0, 2.0)

    monkeypatch.setattr(forecast, "measure_speed", measure)
    return trials


def workload(*trials: Trial, most: int | None = None, **changes: Any) -> Workload:
    values: dict[str, Any] = {"resources": Resources(), "concurrent": 2} | changes
    return Workload(trials, len(trials) if most is None else most, **values)


def test_listed_trials_are_added_up(tmp_path: Path) -> None:
    disk = forecast_disk(workload(DENSE, PRUNED, PRUNED), str(tmp_path / "not" / "yet"))
    assert disk.most_bytes == 10_000 + 2 * 20_000 + 2 * 2 * 50_000
    assert (disk.trials, disk.trial_bytes, disk.running) == (3, 20_000, 2)
    assert not disk.are_alike
    assert disk.free_bytes is not None
    assert disk.free_bytes > 0
    assert forecast_disk(workload(PRUNED), str(tmp_path)).running == 1


def test_a_search_may_run_the_largest_every_time(tmp_path: Path) -> None:
    disk = forecast_disk(workload(DENSE, PRUNED, most=12), str(tmp_path))
    assert disk.most_bytes == 12 * 20_000 + 2 * 2 * 50_000


def test_room_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "_free_bytes", lambda folder: 69_999)
    assert not forecast_disk(workload(DENSE, concurrent=1), str(tmp_path)).is_enough_free
    monkeypatch.setattr(forecast, "_free_bytes", lambda folder: 70_000)
    assert forecast_disk(workload(DENSE, concurrent=1), str(tmp_path)).is_enough_free


def test_a_bucket_is_large_enough() -> None:
    disk = forecast_disk(workload(DENSE), "s3://bucket/runs")
    assert disk.free_bytes is None
    assert disk.is_enough_free


def test_how_many_trials_each_one_stands_for() -> None:
    assert workload(DENSE, PRUNED).counts() == [1, 1]
    # A search lists its dense trials, and one pruned one for each arm.
    assert workload(DENSE, DENSE, PRUNED, PRUNED, most=12).counts() == [1, 1, 5, 5]
    assert workload(DENSE, DENSE, most=6).counts() == [3, 3]
    assert workload(DENSE, DENSE, PRUNED, most=1).counts() == [1 / 3] * 3


def test_time_of_steps_evaluations_and_starts(tried: list[Trial]) -> None:
    time = forecast_time(workload(DENSE, PRUNED, PRUNED.replace(seed=1), concurrent=2), EMPTY)
    # 2 + 1000/100 + 300/200 s, and twice 2 + 2000/100 + 300/200 s.
    assert time.worker_seconds == 13.5 + 2 * 23.5
    assert time.seconds == time.worker_seconds / 2
    assert (time.workers, time.trials, time.steps) == (2, 3, (100, 200))
    assert time.rows_per_second == (100.0, 100.0)
    assert (time.measured, time.recorded) == (True, False)
    assert tried == [DENSE, PRUNED]  # one of each kind


def test_a_study_takes_as_long_as_its_longest_trial(tried: list[Trial]) -> None:
    assert forecast_time(workload(DENSE, PRUNED, concurrent=8), EMPTY).seconds == 23.5
    assert forecast_time(workload(PRUNED, concurrent=8), EMPTY).seconds == 23.5


def test_workers_are_paid_for(tried: list[Trial]) -> None:
    time = forecast_time(workload(PRUNED, most=4, resources=Resources(workers=2)), EMPTY)
    assert (time.seconds, time.worker_seconds, time.workers) == (47.0, 4 * 23.5 * 2, 4)


def test_what_is_recorded_is_not_tried(tried: list[Trial]) -> None:
    here = describe_hardware_here(Resources())
    records = result_table(row(DENSE, 50.0, seconds=132.0, hardware=here, step=200, batch_size=32))
    time = forecast_time(workload(DENSE, concurrent=1), records)
    # Besides its 200 steps of 32 rows the recorded trial took 132 − 128 s.
    assert time.seconds == 1000 / 50 + 4
    assert (time.measured, time.recorded, tried) == (False, True, [])
    both = forecast_time(workload(DENSE, PRUNED), records)
    assert (both.measured, both.recorded, tried) == (True, True, [PRUNED])
    assert both.rows_per_second == (50.0, 100.0)


def test_short_records_do_not_hide_long_evaluations(tried: list[Trial]) -> None:
    here = describe_hardware_here(Resources())
    records = result_table(row(DENSE, 50.0, seconds=None, hardware=here))
    time = forecast_time(workload(DENSE), records)
    assert time.seconds == 1000 / 50 + 300 / 50 / 3  # a forward is a third of a step


def test_gpus_that_are_not_here(tried: list[Trial], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = workload(DENSE, resources=Resources(gpus=True))
    with pytest.raises(UserError, match="^no GPU here to measure on, and no trial like these is"):
        forecast_time(asked, EMPTY)
    records = result_table(row(DENSE, 500.0, hardware="1 × an accelerator"))
    assert forecast_time(asked, records).rows_per_second == (500.0, 500.0)
    assert tried == []


def test_trials_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 9)
    assert count_concurrent(Resources(workers=2, cpus_per_worker=2), None, "ray") == 2
    assert count_concurrent(Resources(), 3, "ray") == 3
    assert count_concurrent(Resources(), None, "process") == 1
    assert count_concurrent(Resources(workers=20), None, "ray") == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert count_concurrent(Resources(workers=2, gpus=True), None, "ray") == 2
