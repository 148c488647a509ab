"""Tune's events, passed on to a study's listeners in their own words."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ray.tune import Callback, Stopper

from bermo_ray.ray_backend.progress import BoardReader
from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import decode_history, decode_report, encode_result
from bermo_ray.record import Listener, Report, Status
from bermo_ray.trial import Trial


class ListenerCallback(Callback):
    """Tells listeners of starts, reports, checkpoints and ends.

    It is pickled with the experiment, without its listeners: a resumed study brings its own.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = list(listeners)
        self._resumed = False
        self._board: BoardReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"listeners": [], "_resumed": True, "_board": None}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """After a resume: what ended before is told once, so that it is counted."""
        if not self._resumed:
            return
        self._resumed = False
        for trial in trials:
            report = decode_report(trial.last_result)
            if trial.is_finished() and report is not None and report.status.ended:
                for listener in self.listeners:
                    listener.on_known(trial.trial_id, _trial_of(trial), report)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._board = self._board or BoardReader()
        shares = self._board.read()
        for listener in self.listeners:
            for attempt, share in shares.items():
                listener.on_progress(attempt, share)
            listener.on_refresh()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        for listener in self.listeners:
            listener.on_start(trial.trial_id, _trial_of(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        reports = decode_history(result)
        checkpoint = _with_scheme(trial, result.get("checkpoint_path", ""))
        for listener in self.listeners:
            listener.on_report(trial.trial_id, reports, checkpoint)

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        for listener in self.listeners:
            listener.on_checkpoint(trial.trial_id, _with_scheme(trial, checkpoint.path))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial whose process was lost more often than is retried; maybe before its start."""
        lines = str(trial.get_error() or "").strip().splitlines() or [""]
        lost = Report(status=Status.FAILED, reason=f"lost its process: {lines[-1]}")
        for listener in self.listeners:
            listener.on_start(trial.trial_id, _trial_of(trial))
            listener.on_report(trial.trial_id, [lost], "")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        with contextlib.ExitStack() as closing:  # one that raises leaves none of the others open
            for listener in self.listeners:
                closing.callback(listener.on_close)


class GiveUpStopper(Stopper):
    """Ends a trial that the plan gives up, as a result of its own: ``status=stopped``."""

    def __init__(self, searcher: PlanSearcher) -> None:
        self.searcher = searcher

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here; Tune passes the result on as it is left."""
        report = decode_report(result)
        reason = None if report is None else self.searcher.give_up_reason(trial_id, report)
        if report is None or reason is None:
            return False
        stopped = replace(report, status=Status.STOPPED, reason=reason)
        result.update(encode_result(stopped))
        return True

    def stop_all(self) -> bool:
        """The study itself goes on."""
        return False


def _trial_of(tune_trial: Any) -> Trial:
    return Trial.from_json(tune_trial.config["trial"])


def _with_scheme(tune_trial: Any, path: str) -> str:
    """Ray names a checkpoint in a bucket without the scheme of its storage."""
    scheme, separator, _ = str(tune_trial.config.get("storage", "")).partition("://")
    return f"{scheme}://{path}" if separator and path and "://" not in path else path
