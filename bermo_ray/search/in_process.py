"""Runs a plan in this process, one trial after the other: no Ray, no MLflow."""

import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bermo_ray.record import Listener, Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.plan import Plan
from bermo_ray.search.trial_names import name_folder
from bermo_ray.space import OutOfSpaceError
from bermo_ray.training.loop import train
from bermo_ray.training.reporter import LocalReporter

_SECONDS_BETWEEN = 0.5  # looks at how far a trial is


def run_in_process(
    dialogue: Dialogue, listeners: Sequence[Listener], folder: Path, threads: int = 1
) -> Plan:
    """Runs all trials of a dialogue's plan that have not ended; checkpoints go to ``folder``.

    A Python error in a trial is a result, ``status=failed``; the others go on. One of the plan's or
    a listener's own, or a full disk, ends the run.
    """
    plan = dialogue.plan
    with contextlib.ExitStack() as closing:
        for listener in listeners:
            closing.callback(listener.on_close)
        while (asked := dialogue.ask_next()) is not None:
            _run_attempt(dialogue, asked[0], listeners, folder, threads)
    if not plan.finished:
        raise RuntimeError(f"{type(plan).__name__}: nothing is asked for, yet it is not finished")
    return plan


def _run_attempt(
    dialogue: Dialogue, attempt: str, listeners: Sequence[Listener], folder: Path, threads: int
) -> None:
    trial = dialogue.running[attempt]
    for listener in listeners:
        listener.on_start(attempt, trial)
    torch.set_num_threads(threads)
    reporter = _ListenedReporter(folder / name_folder(trial))
    reporter.dialogue, reporter.attempt, reporter.listeners = dialogue, attempt, listeners
    try:
        last = train(trial, reporter)
    except _GivenUp as given_up:
        last = given_up.report
    except OutOfSpaceError:
        raise
    except Exception as error:
        if reporter.outside_error is not None:
            raise reporter.outside_error from None
        last = _failure(error)
        for listener in listeners:
            listener.on_report(attempt, [last], "")
    dialogue.tell(attempt, last)


class _GivenUp(Exception):
    """Ends a trial that its plan gives up."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.reason)
        self.report = report


def _failure(error: Exception) -> Report:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return Report(status=Status.FAILED, reason=reason, traceback=traceback.format_exc())


class _ListenedReporter(LocalReporter):
    """Passes reports on to the listeners, and ends the trial when its plan gives it up."""

    dialogue: Dialogue
    attempt: str
    listeners: Sequence[Listener]
    outside_error: Exception | None = None  # of the plan or a listener: not the trial's
    shown_at: float = 0.0

    def progress(self, share: float) -> None:
        now = time.monotonic()
        if now - self.shown_at < _SECONDS_BETWEEN:
            return
        self.shown_at = now
        try:
            for listener in self.listeners:
                listener.on_progress(self.attempt, share)
                listener.on_refresh()
        except Exception as error:
            self.outside_error = error
            raise

    def report(
        self,
        report: Report,
        save: Callable[[Path], None] | None,
        history: Sequence[Report] = (),
    ) -> None:
        super().report(report, save, history)
        try:
            self._pass_on(report, history)
        except _GivenUp:
            raise
        except Exception as error:
            self.outside_error = error
            raise

    def _pass_on(self, report: Report, history: Sequence[Report]) -> None:
        reason = self.dialogue.give_up_reason(self.attempt, report, history)
        if reason is not None:
            report = replace(report, status=Status.STOPPED, reason=reason)
        for listener in self.listeners:
            listener.on_report(self.attempt, [*history, report], str(self.folder))
            listener.on_refresh()
        if reason is not None:
            raise _GivenUp(report)
