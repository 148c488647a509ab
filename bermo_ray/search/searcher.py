"""Ray Tune's searcher interface over Optuna: one study an arm, two objectives each.

Ray's own OptunaSearch leaves a trial running for ever on NaN, shares one default study name, and
restores by pickle; this one tells every end to Optuna and keeps its state as JSON.
"""

import json
from pathlib import Path
from typing import Any, Literal

import optuna
from ray.tune.search import Searcher

from bermo_ray.search.space import Space
from bermo_ray.trial import Trial

# (remaining weights ↓, metric ↑): the two sides of the frontier.
OBJECTIVES: tuple[tuple[str, Literal["minimize", "maximize"]], ...] = (
    ("remaining", "minimize"),
    ("metric", "maximize"),
)


class ArmSearcher(Searcher):
    """Walks the fixed trials, then the arms in turn until each had ``trials_per_arm``."""

    def __init__(
        self, space: Space, trials_per_arm: int, seed: int, common: dict[str, Any]
    ) -> None:
        super().__init__()  # with a metric named, Tune would end the study on a report without it
        self.space = space
        self.trials_per_arm = trials_per_arm
        self.seed = seed
        self.common = common  # what every trial's config holds besides the trial itself
        self.issued = 0
        self.log: list[dict[str, Any]] = []  # one entry a suggestion, all that restore needs
        self._open: dict[str, tuple[str, optuna.Trial]] = {}
        self._studies = {name: self._study(i) for i, name in enumerate(space.arms)}

    @property
    def total(self) -> int:
        """Trials in all."""
        return len(self.space.fixed) + len(self.space.arms) * self.trials_per_arm

    def _study(self, index: int, again: int = 0) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(
            seed=(self.seed + 1009 * index + 9176 * again) % 2**32,
            n_startup_trials=max(4, self.trials_per_arm // 2),
        )
        return optuna.create_study(sampler=sampler, directions=[way for _, way in OBJECTIVES])

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """The next trial's config, or FINISHED."""
        if self.issued >= self.total:
            return Searcher.FINISHED
        place, self.issued = self.issued, self.issued + 1
        if place < len(self.space.fixed):
            trial = self.space.fixed[place]
            self.log.append({"id": trial_id, "arm": None, "params": {}, "values": None})
            return self._config(trial)
        number, index = divmod(place - len(self.space.fixed), len(self.space.arms))
        arm = list(self.space.arms)[index]
        study = self._studies[arm]
        if known := self.walked(number):
            study.enqueue_trial(known)
        asked = study.ask({key: r.distribution for key, r in self.space.ranges.items()})
        self._open[trial_id] = (arm, asked)
        self.log.append({"id": trial_id, "arm": arm, "params": asked.params, "values": None})
        return self._config(self.space.arms[arm].replace(**asked.params))

    def walked(self, number: int) -> dict[str, float]:
        """What is already known of an arm's n-th trial: its place on the walk along ``spread``."""
        steps = max(1, self.trials_per_arm // 2)
        if self.space.spread is None or number >= steps:
            return {}
        # Inner quantiles, from the gentlest to the harshest: (k + ½)/n.
        value = self.space.ranges[self.space.spread].quantile((number + 0.5) / steps)
        return {self.space.spread: value}

    def _config(self, trial: Trial) -> dict[str, Any]:
        return {"trial": trial.to_json(), **self.common}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Nothing is learned before a trial's end: early epochs are denser, so not comparable."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Optuna every end, so that no trial stays open.

        A diverged trial is told as dense and no better than a constant answer, so that the
        sampler keeps away from there; its own numbers (all but empty) would draw it on. A failed
        one says nothing of the space and is told as failed.
        """
        status = None if error or result is None else result.get("status")
        values: list[float] | None = None
        if result is not None and status == "completed":
            values = [float(result[key]) for key, _ in OBJECTIVES]
        elif result is not None and status == "diverged":
            values = [1.0, float(result.get("trivial", 0.0))]
        for entry in self.log:
            if entry["id"] == trial_id:
                entry["values"] = values or []
        if trial_id in self._open:
            arm, asked = self._open.pop(trial_id)
            failed = optuna.trial.TrialState.FAIL
            self._studies[arm].tell(asked, values, state=None if values else failed)

    def save(self, checkpoint_path: str) -> None:
        """State as JSON."""
        Path(checkpoint_path).write_text(json.dumps({"issued": self.issued, "log": self.log}))

    def restore(self, checkpoint_path: str) -> None:
        """Rebuilds the Optuna studies from the log: what was told, and what was still open."""
        state = json.loads(Path(checkpoint_path).read_text())
        self.issued, self.log, self._open = state["issued"], state["log"], {}
        names = list(self.space.arms)
        # Another sampler seed, or the restored search would repeat its first draws.
        self._studies = {n: self._study(i, self.issued) for i, n in enumerate(names)}
        ranges = {key: r.distribution for key, r in self.space.ranges.items()}
        for entry in self.log:
            if entry["arm"] is None:
                continue
            study, values = self._studies[entry["arm"]], entry["values"]
            if values is None:
                study.enqueue_trial(entry["params"])
                self._open[entry["id"]] = (entry["arm"], study.ask(ranges))
            else:
                done = optuna.trial.TrialState.COMPLETE if values else optuna.trial.TrialState.FAIL
                study.add_trial(
                    optuna.trial.create_trial(
                        state=done,
                        params=entry["params"],
                        distributions=ranges,
                        values=values or None,
                    )
                )
