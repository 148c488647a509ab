"""What a run reports of its speed."""

from types import SimpleNamespace
from typing import Any

import pytest

from bermo_ray.training import loop, measure
from bermo_ray.training.reporter import run_locally
from tests.support.runs import small_trial


def test_the_speed_is_that_of_training_alone(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock by which a step takes a second, an evaluation a thousand."""
    clock = SimpleNamespace(now=0.0)
    take_step, evaluate_dev = loop.take_step, measure.evaluate_dev

    def slow_step(*args: Any) -> Any:
        clock.now += 1
        return take_step(*args)

    def slow_evaluation(run: Any) -> Any:
        clock.now += 1000
        return evaluate_dev(run)

    monkeypatch.setattr(loop, "take_step", slow_step)
    monkeypatch.setattr(measure, "evaluate_dev", slow_evaluation)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    reports = run_locally(small_trial(tiny))
    assert [report.rows_per_second for report in reports] == [16.0] * 4
