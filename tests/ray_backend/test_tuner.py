"""Ctrl-C while Tune runs in its thread."""

import os
import signal
import threading
from collections.abc import Callable

import pytest
import ray

from bermo_ray.ray_backend.cluster import starting_no_other_ray
from bermo_ray.ray_backend.trials import TrialConfig
from bermo_ray.ray_backend.tuner import INTERRUPTED, PlanRun
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.grid import Grid
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import Trial

SECONDS = 10  # more than anything here takes


class FakeTuner:
    """Runs a function in place of trials."""

    def __init__(self, fit: Callable[[], object]) -> None:
        self.fit = fit


class FakeSearcher:
    """Says when it is told to stop."""

    def __init__(self) -> None:
        self.is_stopped = threading.Event()

    @property
    def stop_reason(self) -> str | None:
        return INTERRUPTED if self.is_stopped.is_set() else None

    @stop_reason.setter
    def stop_reason(self, reason: str) -> None:
        self.is_stopped.set()


class Case:
    """A run whose trials are a function, and what it meets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fit: Callable[["Case"], object]) -> None:
        config = TrialConfig(Resources(), "x")
        self.run = PlanRun(Dialogue(Grid([Trial()])), config, [], name="s", concurrent=1)
        self.searcher, self.is_waiting = FakeSearcher(), threading.Event()
        self.run._searcher = self.searcher  # type: ignore[assignment]
        tuner = FakeTuner(lambda: fit(self))
        monkeypatch.setattr(PlanRun, "_make_tuner", lambda run, folder: tuner)

    def wait(self) -> bool:
        return self.run.wait(lambda: self.is_waiting.set() is not None)

    def press_ctrl_c(self) -> None:
        """As a terminal does; until the run has heard of it."""
        assert self.is_waiting.wait(SECONDS)
        os.kill(os.getpid(), signal.SIGINT)
        assert self.searcher.is_stopped.wait(SECONDS)


def test_after_ctrl_c_it_waits_until_tune_has_wound_up(monkeypatch: pytest.MonkeyPatch) -> None:
    gone_on, too_early = threading.Event(), []

    def fit(case: Case) -> None:
        case.press_ctrl_c()
        too_early.append(gone_on.wait(1))

    case = Case(monkeypatch, fit)
    assert case.wait()
    gone_on.set()
    assert case.run.join(SECONDS)
    assert too_early == [False]
    assert case.run.result() is None


def test_the_second_ctrl_c_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def fit(case: Case) -> None:
        case.press_ctrl_c()
        os.kill(os.getpid(), signal.SIGINT)
        may_end.wait(SECONDS)

    case = Case(monkeypatch, fit)
    with pytest.raises(KeyboardInterrupt):
        case.wait()
    assert not case.run.join(0)
    may_end.set()
    assert case.run.join(SECONDS)


def test_once_ray_is_shut_down_no_other_is_started() -> None:
    assert not ray.is_initialized()
    with starting_no_other_ray(), pytest.raises(Exception, match="has not been (started|init)"):
        ray.put(1)
    assert not ray.is_initialized()
