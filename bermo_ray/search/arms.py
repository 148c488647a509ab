"""The search for frontiers: Optuna over two objectives, one study an arm."""

import math
from collections.abc import Sequence
from typing import Literal

import optuna

from bermo_ray.search.plan import Plan, Report, Row, completed, row_of
from bermo_ray.search.space import Space
from bermo_ray.trial import Trial

# (remaining weights ↓, metric ↑): the two sides of the frontier.
OBJECTIVES: tuple[tuple[str, Literal["minimize", "maximize"]], ...] = (
    ("remaining", "minimize"),
    ("metric", "maximize"),
)


class FrontierSearch(Plan):
    """The fixed trials, then the arms in turn until each had ``trials_per_arm``; at last what no
    other trial of its arm beats is run again with the other seeds. Earlier trials of the same kind
    teach the samplers."""

    def __init__(
        self,
        space: Space,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        earlier: Sequence[tuple[Trial, Report]] = (),
    ) -> None:
        self.space, self.trials_per_arm, self.seeds = space, trials_per_arm, seeds
        self.fixed = [t.replace(seed=seed) for seed in seeds for t in space.fixed]
        searched = len(space.arms) * trials_per_arm
        self.most = len(self.fixed) + searched * len(seeds)
        self._asked = 0
        self._open: dict[str, list[tuple[str, optuna.Trial]]] = {}  # by the trial's id
        self._found: dict[str, list[tuple[float, float, Trial]]] = {name: [] for name in space.arms}
        self._again: list[Trial] | None = None
        self._studies = {name: self._study(i) for i, name in enumerate(space.arms)}
        self._searched = len(self.fixed) + searched
        for trial, report in earlier:
            self._know(trial, report)

    def _know(self, trial: Trial, report: Report) -> None:
        """Teaches the samplers an earlier trial, if it is of a kind that is searched here."""
        if trial.pruning is None or not completed(report, *(key for key, _ in OBJECTIVES)):
            return
        for arm, study in self._studies.items():
            if (place := self.space.place(arm, trial)) is not None:
                study.add_trial(
                    optuna.trial.create_trial(
                        params=place,
                        distributions=dict(self.space.distributions),
                        values=[float(report[key]) for key, _ in OBJECTIVES],
                    )
                )

    def _study(self, index: int) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(
            seed=(self.seeds[0] + 1009 * index) % 2**32,
            n_startup_trials=max(4, self.trials_per_arm // 2),
        )
        return optuna.create_study(sampler=sampler, directions=[way for _, way in OBJECTIVES])

    def ask(self) -> Trial | None:
        if self._asked < len(self.fixed):
            self._asked += 1
            return self.fixed[self._asked - 1]
        if self._asked < self._searched:
            number, index = divmod(self._asked - len(self.fixed), len(self.space.arms))
            self._asked += 1
            return self._sample(list(self.space.arms)[index], number)
        if self._open:
            return None
        again = self._repeats()
        return again.pop(0) if again else None

    def _sample(self, arm: str, number: int) -> Trial:
        study = self._studies[arm]
        if known := self.walked(number):
            study.enqueue_trial(known)
        asked = study.ask(dict(self.space.distributions))
        trial = self.space.arms[arm].replace(**asked.params, seed=self.seeds[0])
        self._open.setdefault(trial.id, []).append((arm, asked))
        return trial

    def _repeats(self) -> list[Trial]:
        """What is on an arm's frontier, with the seeds it has not had."""
        if self._again is None:
            self._again = []
            for found in self._found.values():
                best = -math.inf
                for _, metric, trial in sorted(found, key=lambda f: (f[0], -f[1])):
                    if metric > best:
                        best = metric
                        self._again += [trial.replace(seed=seed) for seed in self.seeds[1:]]
        return self._again

    @property
    def finished(self) -> bool:
        done = self._asked >= self._searched and not self._open
        return done and not self._repeats()

    def walked(self, number: int) -> dict[str, float]:
        """What is already known of an arm's n-th trial: its place on the walk along ``spread``."""
        steps = max(1, self.trials_per_arm // 2)
        if self.space.spread is None or number >= steps:
            return {}
        # Inner quantiles, from the gentlest to the harshest: (k + ½)/n.
        value = self.space.ranges[self.space.spread].quantile((number + 0.5) / steps)
        return {self.space.spread: value}

    def tell(self, trial: Trial, report: Report | None) -> None:
        """Tells Optuna every end, so that no trial stays open.

        A diverged trial is told as dense and no better than a constant answer, so that the sampler
        keeps away from there; its own numbers (all but empty) would draw it on. A failed one, or
        one without finite numbers, says nothing of the space and is told as failed.
        """
        if trial.id not in self._open:
            return
        arm, asked = self._open[trial.id].pop()
        if not self._open[trial.id]:
            del self._open[trial.id]
        values: list[float] | None = None
        if report is not None and completed(report, *(key for key, _ in OBJECTIVES)):
            values = [float(report[key]) for key, _ in OBJECTIVES]
            self._found[arm].append((values[0], values[1], trial))
        elif report is not None and report.get("status") == "diverged":
            values = [1.0, float(report.get("trivial", 0.0))]
        state = None if values else optuna.trial.TrialState.FAIL
        self._studies[arm].tell(asked, values, state=state)

    def examples(self) -> list[Trial]:
        return [*self.space.arms.values(), *self.fixed]

    def preview(self) -> list[Row]:
        rows = []
        keys = {key: key.split("__")[-1].replace("_", " ") for key in self.space.ranges}
        for trial in self.fixed:
            rows.append(row_of(trial) | {"id": trial.id})
        for number in range(self.trials_per_arm):
            known = self.walked(number)
            for arm in self.space.arms.values():
                values = {
                    name: f"{known[key]:.3g}" if key in known else f"{span.low:g}–{span.high:g}"
                    for (key, span), name in zip(
                        self.space.ranges.items(), keys.values(), strict=True
                    )
                }
                rows.append(row_of(arm) | values | {"id": "by search"})
        return rows

    def to_json(self) -> str:
        return self.space.to_json()
