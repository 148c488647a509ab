"""The search for frontiers: Optuna over two objectives, one study per arm."""

import math
from collections.abc import Sequence
from typing import Literal

import optuna

from bermo_ray.record import Report, Status
from bermo_ray.search.arm_search import ArmSearch, EarlierTrials
from bermo_ray.search.space import Space
from bermo_ray.trial import Trial

# The two sides of the frontier, by the report's figures.
OBJECTIVES: tuple[tuple[str, Literal["minimize", "maximize"]], ...] = (
    ("remaining", "minimize"),
    ("metric", "maximize"),
)
_NAMES = tuple(name for name, _ in OBJECTIVES)


def _objective_values(report: Report) -> list[float]:
    return [float(getattr(report, name)) for name in _NAMES]


class FrontierSearch(ArmSearch):
    """The baselines, then the arms in turn until each had ``trials_per_arm``; at last what no
    other trial of its arm beats is run again with the other seeds.

    The first half of an arm's trials walks from the gentlest λ to the harshest.
    """

    chooses = True

    def __init__(
        self,
        space: Space,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        earlier: EarlierTrials = (),
    ) -> None:
        super().__init__(space, trials_per_arm, seeds, earlier)
        searched = len(space.arms) * trials_per_arm
        self._before_repeats = len(self.baselines) + searched
        self.most_trials = len(self.baselines) + searched * len(seeds)
        self._asked = 0
        self._open: dict[str, list[tuple[str, optuna.Trial]]] = {}  # by the trial's id
        self._completed: dict[str, list[tuple[float, float, Trial]]] = {a: [] for a in space.arms}
        self._repeats: list[Trial] | None = None
        self.studies = {arm: self._make_study(arm) for arm in space.arms}

    def _make_study(self, arm: str) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(
            seed=self.sampler_seed(arm), n_startup_trials=max(4, self.trials_per_arm // 2)
        )
        study = optuna.create_study(sampler=sampler, directions=[way for _, way in OBJECTIVES])
        for _, coordinates, report in self.earlier_of(arm):
            study.add_trial(
                optuna.trial.create_trial(
                    params=coordinates,
                    distributions=dict(self.space.distributions),
                    values=_objective_values(report),
                )
            )
        return study

    def ask(self) -> Trial | None:
        if self._asked < len(self.baselines):
            self._asked += 1
            return self.baselines[self._asked - 1]
        if self._asked < self._before_repeats:
            number, index = divmod(self._asked - len(self.baselines), len(self.space.arms))
            self._asked += 1
            return self._sample(list(self.space.arms)[index], number)
        if self._open:
            return None
        repeats = self._choose_repeats()
        return repeats.pop(0) if repeats else None

    def _sample(self, arm: str, number: int) -> Trial:
        study = self.studies[arm]
        if known := self.known_values(number):
            study.enqueue_trial(known)
        asked, trial = self.ask_study(study, arm)
        self._open.setdefault(trial.id, []).append((arm, asked))
        return trial

    def _choose_repeats(self) -> list[Trial]:
        """What is on an arm's frontier, with the seeds it has not had."""
        if self._repeats is None:
            self._repeats = []
            for completed in self._completed.values():
                best = -math.inf
                for _, metric, trial in sorted(completed, key=lambda entry: (entry[0], -entry[1])):
                    if metric > best:
                        best = metric
                        self._repeats += [trial.replace(seed=seed) for seed in self.seeds[1:]]
        return self._repeats

    @property
    def finished(self) -> bool:
        searched = self._asked >= self._before_repeats and not self._open
        return searched and not self._choose_repeats()

    def known_values(self, number: int) -> dict[str, float]:
        """Of the first half of an arm's trials: λ at inner quantiles of its range, (k + ½)/n."""
        steps = max(1, self.trials_per_arm // 2)
        if self.space.sparsity_key is None or number >= steps:
            return {}
        span = self.space.ranges[self.space.sparsity_key]
        return {self.space.sparsity_key: span.quantile((number + 0.5) / steps)}

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
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
        last = reports[-1] if reports else None
        if last is not None and last.usable(*_NAMES):
            values = _objective_values(last)
            self._completed[arm].append((values[0], values[1], trial))
        elif last is not None and last.status is Status.DIVERGED:
            values = [1.0, last.constant_metric if last.finite("constant_metric") else 0.0]
        state = None if values else optuna.trial.TrialState.FAIL
        self.studies[arm].tell(asked, values, state=state)
