"""Tune's events, passed on to a study's listeners in their own words."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.tune import Callback, Stopper

from bermo_ray.ray_backend.progress import BoardReader
from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import decode_history, encode_result
from bermo_ray.record import Listener, Report, Status
from bermo_ray.trial import Trial


class StudyEnded(Exception):
    """A study is broken off."""


class ListenerCallback(Callback):
    """Tells listeners of starts, reports and ends, and the searcher of what ends the study.

    Tune pickles it with the experiment, which nobody reads: without what it holds.
    """

    def __init__(self, listeners: Sequence[Listener], searcher: PlanSearcher) -> None:
        self.listeners, self.searcher = list(listeners), searcher
        self._board: BoardReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """A study that is to end does so here: Tune then stops its trials at once, and tells the
        searcher of none of them."""
        if self.searcher.stop_reason is not None:
            raise StudyEnded

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._board = self._board or BoardReader()
        shares = self._board.read()
        for listener in self.listeners:
            for attempt, share in shares.items():
                listener.on_progress(attempt, share)
            listener.on_refresh()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        with self._recording() as listeners:
            for listener in listeners:
                listener.on_start(_attempt_of(trial), _trial_of(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        reports = decode_history(result)
        if reports[-1].status is Status.INTERRUPTED:  # by what is no fault of its own
            self.searcher.stop_reason = reports[-1].reason
            return
        with self._recording() as listeners:
            for listener in listeners:
                listener.on_report(_attempt_of(trial), reports, result.get("checkpoint", ""))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial whose process was lost more often than is retried; maybe before its start."""
        file = Path(trial.error_file) if trial.error_file else None
        error = file.read_text() if file and file.is_file() else ""
        lost = Report(status=Status.FAILED, reason=describe_loss(error))
        with self._recording() as listeners:
            for listener in listeners:
                listener.on_start(_attempt_of(trial), _trial_of(trial))
                listener.on_report(_attempt_of(trial), [lost], "")

    @contextlib.contextmanager
    def _recording(self) -> Iterator[list[Listener]]:
        """Gives those who record: nobody, once something was not recorded for want of room. What
        comes after it would make no sense without it."""
        with self.searcher.ending_when_full():
            yield [] if self.searcher.lacks_room else self.listeners

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        # One that raises leaves none of the others open.
        with self.searcher.ending_when_full(), contextlib.ExitStack() as closing:
            for listener in self.listeners:
                closing.callback(listener.on_close)


class GiveUpStopper(Stopper):
    """Ends a trial that the plan gives up, as a result of its own: ``status=stopped``."""

    def __init__(self, searcher: PlanSearcher) -> None:
        self.searcher = searcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here; Tune passes the result on as it is left."""
        reports = decode_history(result)
        if not reports:
            return False
        reason = self.searcher.give_up_reason(trial_id, reports[-1], reports[:-1])
        if reason is None:
            return False
        stopped = replace(reports[-1], status=Status.STOPPED, reason=reason)
        result.update(encode_result(stopped))
        return True

    def stop_all(self) -> bool:
        """The study itself goes on."""
        return False


def _trial_of(tune_trial: Any) -> Trial:
    return Trial.from_json(tune_trial.config["trial"])


def _attempt_of(tune_trial: Any) -> str:
    return str(tune_trial.config["attempt"])


def describe_loss(error: str) -> str:
    """In a line why a process was lost, from what Ray says of it.

    >>> describe_loss("Memory on the node was 3.1GB / 4.0GB (0.78), which is low on memory")
    'out of memory: the node used 3.1GB / 4.0GB, so that Ray ended the process'
    """
    if "low on memory" in error or "OutOfMemory" in error:
        used = re.findall(r"was ([\d.]+ ?[KMGT]?B ?/ ?[\d.]+ ?[KMGT]?B)", error)
        how_much = f"the node used {used[-1]}, so that " if used else ""
        return f"out of memory: {how_much}Ray ended the process"
    lines = [line.strip() for line in error.splitlines() if line.strip()] or ["no reason known"]
    detail = lines[-1].partition("Worker exit detail: ")[2] or lines[-1]
    return f"lost its process: {detail[:_LONGEST_REASON]}"


_LONGEST_REASON = 200  # characters
