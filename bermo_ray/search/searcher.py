"""Ray Tune's searcher interface over a plan.

Ray's own OptunaSearch leaves a trial running for ever on NaN, shares one default study name, can't
see constraints and restores by pickle. Here every end is told, a study is its plan's own, and the
state is a JSON log of what was asked and told, which a fresh plan is told again.
"""

import json
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from bermo_ray.errors import UserError
from bermo_ray.search.plan import Plan
from bermo_ray.trial import Trial

# What plans decide by; the rest of a report is for the records.
KEPT = (
    "step", "status", "metric", "remaining", "density", "trivial", "layers",
    "first_half", "second_half",
)  # fmt: skip


class PlanSearcher(Searcher):
    """Asks the plan for trials and tells it how they ended."""

    def __init__(self, plan: Plan, common: dict[str, Any]) -> None:
        super().__init__()  # with a metric named, Tune would end the study on a report without it
        self.plan = plan
        self.common = common  # what every trial's config holds besides the trial itself
        self.log: list[dict[str, Any]] = []
        self._trials: dict[str, Trial] = {}  # by Tune's id
        self._curves: dict[str, list[dict[str, Any]]] = {}
        self.in_tune: set[str] | None = None  # of a resumed study: ids of the trials that Tune has

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next trial's config; None while results are due, or FINISHED."""
        trial = self.plan.ask()
        if trial is None:
            return Searcher.FINISHED if self.plan.finished else None
        self._trials[trial_id] = trial
        self.log.append({"asked": trial_id, "trial": trial.id})
        return {"trial": trial.to_json(), **self.common}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Plans learn from ends alone: early epochs are denser, so not comparable."""

    def hopeless(self, trial_id: str, result: dict[str, Any]) -> str | None:
        """Why the trial need not go on after this report; None: it does."""
        if trial_id not in self._trials or result.get("final"):
            return None
        curve = self._curves.setdefault(trial_id, [])
        curve.append({k: result[k] for k in KEPT if k in result})
        return self.plan.hopeless(self._trials[trial_id], curve)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Every end is told, once; a trial that was lost without a report."""
        if trial_id not in self._trials:
            return
        report = None if error or result is None else {k: result[k] for k in KEPT if k in result}
        if report is not None and not (result or {}).get("final"):
            report["status"] = "stopped"
        curve = [*self._curves.pop(trial_id, []), *([report] if report else [])]
        self.log.append({"told": trial_id, "report": report, "curve": curve})
        self._tell(trial_id, report, curve)

    def _tell(
        self, trial_id: str, report: dict[str, Any] | None, curve: list[dict[str, Any]]
    ) -> None:
        trial = self._trials.pop(trial_id)
        told = None if report is None else report | {"curve": curve}
        self.plan.tell(trial, told)

    def save(self, checkpoint_path: str) -> None:
        """State as JSON."""
        state = {"log": self.log, "finished": self.plan.finished}
        Path(checkpoint_path).write_text(json.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Back to a saved state."""
        self.replay(json.loads(Path(checkpoint_path).read_text())["log"])

    def replay(self, log: list[dict[str, Any]]) -> None:
        """Tells the log again to the plan, which must not have been asked anything yet.

        Raises:
            UserError: the plan asks for other trials than it did: another version made the log.
        """
        self.log = log
        self._trials = {}
        for entry in self.log:
            if "asked" in entry:
                trial = self.plan.ask()
                if trial is None or trial.id != entry["trial"]:
                    raise UserError(
                        "--resume: this version would have asked for other trials than the study "
                        "did so far; resume it with the version that started it"
                    )
                self._trials[entry["asked"]] = trial
            else:
                self._tell(entry["told"], entry["report"], entry["curve"])
        if self.in_tune is not None:  # a kill between two files: Tune never heard of that trial
            for trial_id in [i for i in self._trials if i not in self.in_tune]:
                self.on_trial_complete(trial_id, error=True)
