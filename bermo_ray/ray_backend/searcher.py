"""Ray Tune's searcher interface over a plan.

Ray's own OptunaSearch leaves a trial running for ever on NaN, shares one default study name, can't
see constraints and restores by pickle. Here every end is told, a study is its plan's own, and what
a resumed study goes on from is the log of the dialogue, not Tune's state.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ray.tune.search import Searcher

from bermo_ray.ray_backend.trials import TrialConfig, decode_report
from bermo_ray.record import Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.space import OutOfSpaceError


class PlanSearcher(Searcher):
    """Asks the plan for trials and tells it how they ended.

    Args:
        dialogue: With the plan.
        config: What the trials' processes are given besides the trials.
    """

    def __init__(self, dialogue: Dialogue, config: TrialConfig) -> None:
        super().__init__()  # with a metric named, Tune would end the study on a report without it
        self.dialogue, self.config = dialogue, config
        self.stop_reason: str | None = None  # why the study ends before its plan does
        self.lacks_room = False
        """Whether something was not recorded, so that nothing may be that comes after it."""
        self._attempts: dict[str, str] = {}  # by Tune's id of the trial

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next trial's config; None while results are due, or FINISHED."""
        asked = None
        if self.stop_reason is None:
            with self.ending_when_full():
                asked = self.dialogue.ask_next()
        if asked is None:
            finished = self.stop_reason or self.dialogue.plan.finished
            return Searcher.FINISHED if finished else None
        self._attempts[trial_id] = asked[0]
        return self.config.to_tune(*asked)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Plans learn from ends alone: early epochs are denser, so not comparable."""

    def give_up_reason(
        self, trial_id: str, report: Report, history: Sequence[Report] = ()
    ) -> str | None:
        """Why the trial need not go on after this report; None: it does."""
        return self.dialogue.give_up_reason(self._attempts[trial_id], report, history)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Every end is told, once; a trial that was lost without a report. What ends because the
        study does has not ended, nor what was not recorded: it goes on when the study is resumed.
        """
        if self.lacks_room:
            return
        last = None if error else decode_report(result)
        if self.stop_reason is not None and (last is None or not last.status.ended):
            return
        if last is not None and not last.status.ended:
            last = replace(last, status=Status.STOPPED)
        with self.ending_when_full():
            self.dialogue.tell(self._attempts[trial_id], last)

    @contextlib.contextmanager
    def ending_when_full(self) -> Iterator[None]:
        """Within: a record for which there is no room ends the study. Tune would take the error for
        the trial's, which it would run again, or tell it in a traceback of its own."""
        try:
            yield
        except OutOfSpaceError as error:
            self.lacks_room = True
            self.stop_reason = self.stop_reason or str(error)

    def save(self, checkpoint_path: str) -> None:
        """Nothing of Tune's state is needed."""

    def restore(self, checkpoint_path: str) -> None:
        """See :meth:`save`."""
