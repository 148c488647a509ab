"""Ray Tune's searcher interface over a plan.

Ray's own OptunaSearch leaves a trial running for ever on NaN, shares one default study name, can't
see constraints and restores by pickle. Here every end is told, a study is its plan's own, and the
state is a JSON log of what was asked and told, which a fresh plan is told again.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from bermo_ray.ray_backend.trials import TrialConfig, decode_report
from bermo_ray.record import Report, Status
from bermo_ray.search.plan import Dialogue, Plan


class PlanSearcher(Searcher):
    """Asks the plan for trials and tells it how they ended. An attempt is Tune's trial id."""

    def __init__(self, plan: Plan, config: TrialConfig) -> None:
        super().__init__()  # with a metric named, Tune would end the study on a report without it
        self.dialogue = Dialogue(plan)
        self.config = config
        self.known_to_tune: set[str] | None = None  # attempts that a resumed Tune has

    @property
    def plan(self) -> Plan:
        return self.dialogue.plan

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next trial's config; None while results are due, or FINISHED."""
        trial = self.dialogue.ask(trial_id)
        if trial is None:
            return Searcher.FINISHED if self.plan.finished else None
        return self.config.to_tune(trial)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Plans learn from ends alone: early epochs are denser, so not comparable."""

    def give_up_reason(self, trial_id: str, report: Report) -> str | None:
        """Why the trial need not go on after this report; None: it does."""
        return self.dialogue.give_up_reason(trial_id, report)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Every end is told, once; a trial that was lost without a report."""
        last = None if error else decode_report(result)
        if last is not None and not last.status.ended:
            last = replace(last, status=Status.STOPPED)
        self.dialogue.tell(trial_id, last)

    def save(self, checkpoint_path: str) -> None:
        """State as JSON."""
        state = {"log": self.dialogue.log, "finished": self.plan.finished}
        Path(checkpoint_path).write_text(json.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Back to a saved state."""
        self.replay(json.loads(Path(checkpoint_path).read_text())["log"])

    def replay(self, log: list[dict[str, Any]]) -> None:
        """Tells the log again to the plan, as :meth:`Dialogue.replay`."""
        self.dialogue.replay(log)
        if self.known_to_tune is not None:  # a kill between two files: Tune never heard of it
            for attempt in [a for a in self.dialogue.running if a not in self.known_to_tune]:
                self.dialogue.tell(attempt, None)
