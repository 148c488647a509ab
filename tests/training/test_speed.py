"""A few real steps; how long they take is not for a test to say."""

import math
from typing import Any

import pytest
import torch

from bermo_ray.errors import UserError
from bermo_ray.training import speed
from bermo_ray.training.reporter import Resources
from bermo_ray.training.speed import describe_hardware_here, measure_speed
from tests.support.runs import small_trial


class Clock:
    """A clock by which a step on n rows takes n tenths of a second, and all else none."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sizes: list[int] = []

    def take_step(self, run: Any, step: int, rows: Any) -> None:
        assert step == run.total_steps // 2
        self.sizes.append(len(rows))
        self.now += len(rows) / 10

    def predict_rows(self, network: Any, data: Any, rows: Any, size: int, device: Any) -> None:
        self.sizes.append(len(rows))
        self.now += len(rows) / 40


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speed, "_now", lambda run: clock.now)
    monkeypatch.setattr(speed, "take_step", clock.take_step)
    monkeypatch.setattr(speed, "predict_rows", clock.predict_rows)
    return clock


def test_rows_per_second_of_steps_and_of_a_forward(tiny: str, clock: Clock) -> None:
    found = measure_speed(small_trial(tiny), Resources())
    assert (found.rows_per_second, found.evaluation_rows_per_second) == pytest.approx((10, 40))
    # Two to warm up, as many as fit into 5 s, and four batches of dev.
    assert clock.sizes == [2, 2, 16, 16, 16, 16, 64]


def test_a_step_that_would_take_too_long_is_tried_on_fewer_rows(tiny: str, clock: Clock) -> None:
    measure_speed(small_trial(tiny, batch_size=96), Resources())
    assert clock.sizes == [12, 12, 12, 12, 12, 12, 12, 48]


def test_workers_share_a_batch(tiny: str, clock: Clock) -> None:
    found = measure_speed(small_trial(tiny), Resources(workers=4))
    assert clock.sizes == [1, 1, *[4] * 8, 16]
    assert found.rows_per_second == pytest.approx(4 * 10)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pruning": None, "mode": "features"},
        {"data": {"train_rows": None, "shots": 3}},
        {"optimizer": {"warmup": 500}},
        {"layer_drop": {"strategy": "contribution", "threshold": -0.999}},
        {"distillation": {"teacher": "untrained-1"}, "warm_start": "untrained-2"},
    ],
)
def test_any_trial_can_be_tried(tiny: str, changes: dict[str, Any]) -> None:
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    found = measure_speed(small_trial(tiny, **changes), Resources())
    assert all(math.isfinite(value) and value > 0 for value in vars(found).values())
    assert torch.get_num_threads() == 2  # all is as it was
    assert torch.equal(torch.get_rng_state(), state)


def test_without_a_gpu_there_is_none_to_measure(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    resources = Resources(gpus=True)
    assert describe_hardware_here(resources) is None
    with pytest.raises(UserError, match="^gpus: there is none here to measure a trial's speed on$"):
        measure_speed(small_trial(tiny), resources)


def test_hardware_is_named_as_trials_record_it(tiny: str) -> None:
    from bermo_ray.training.reporter import run_locally

    (*_, last) = run_locally(small_trial(tiny, epochs=1), threads=1)
    torch.set_num_threads(2)  # of this process, not of a worker
    assert describe_hardware_here(Resources(cpus_per_worker=1)) == last.hardware
