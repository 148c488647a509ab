"""The search for the fewest remaining weights that meet a target metric (docs/methods.md §4)."""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
import optuna

from bermo_ray.errors import UserError
from bermo_ray.intervals import mean_half_width
from bermo_ray.record import Report, Status
from bermo_ray.search.answer import Choice, Sureness, choose_recipe
from bermo_ray.search.arm_search import ArmSearch, EarlierTrials
from bermo_ray.search.sampler import CONSTRAINT, SIZE_UNKNOWN, TargetSampler
from bermo_ray.search.space import Space
from bermo_ray.search.target import GiveUpRule, Target
from bermo_ray.trial import Penalized, Trial

_SEARCHED = ("metric_selection", "remaining")
_REPORTED = ("metric_reported", "remaining")
_ANSWERING = (Status.COMPLETED, Status.DIVERGED, Status.STOPPED)  # ends that tell of the metric


class Phase(Enum):
    """Where the search of one arm stands; it only ever goes forwards."""

    DENSE_SEARCH = auto()  # dense trials at several learning rates, with the search's seed
    BASELINE = auto()  # the best of them runs with the reported seeds
    SEARCH = auto()  # its sampler is asked
    REPORT = auto()  # the recipe that the search chose runs with the reported seeds
    DONE = auto()
    REFUSED = auto()  # its target can't be searched for


@dataclass
class Arm:
    """What is known of one arm."""

    name: str
    base: Trial
    phase: Phase = Phase.DENSE_SEARCH
    refusal: str | None = None
    dense_search: list[tuple[Trial, Report | None]] = field(default_factory=list)
    dense: dict[int, Report | None] = field(default_factory=dict)  # by reported seed
    target_selection: float = math.nan  # the metric asked for, on the rows that choose
    target_reported: float = math.nan  # and on those that are reported
    study: optuna.Study | None = None
    asked: int = 0  # of the sampler
    waiting: list[Trial] = field(default_factory=list)  # to be asked for, but for the sampler's
    running: int = 0
    open: dict[str, list[optuna.Trial]] = field(default_factory=dict)  # by Trial.id
    winners: list[Sequence[Report]] = field(default_factory=list)  # reports of those that met it
    choice: Choice | None = None
    recipe: Trial | None = None  # that was chosen
    reported: dict[int, Report | None] = field(default_factory=dict)  # of the recipe, by seed

    def refuse(self, why: str) -> None:
        """Ends it: its target can't be searched for."""
        self.phase, self.refusal = Phase.REFUSED, why

    def mean_dense(self, figure: str) -> float:
        """Of the dense baseline over its seeds; NaN where none completed."""
        values = [getattr(r, figure) for r in self.dense.values() if r is not None]
        return statistics.fmean(values) if values else math.nan


class TargetSearch(ArmSearch):
    """Searches each arm for its sparsest recipe that meets the target, then runs that one recipe
    with the reported seeds.

    What chooses does not judge: the search has a seed of its own and sees the selection half of dev
    alone; the recipe that it chooses is reported by seeds, and on rows, that had no part in it. So
    there is one candidate and no second choice after the report (docs/methods.md §4).

    Each arm goes through the phases of :class:`Phase`; :meth:`_advance` holds every transition. A
    target that the dense baseline itself misses ends an arm before it is searched
    (:attr:`refusals`). Of earlier studies, a trial that would be run again is taken as it was, and
    pruned ones of other seeds than those reported teach the sampler.

    Args:
        space: The arms and the ranges of their numbers.
        target: The metric to reach.
        trials_per_arm: Pruned trials searched for each arm.
        seeds: Those that report.
        search_seed: The one that searches.
        earlier: Finished trials of other studies.
        n_dense_trials: As for :class:`ArmSearch`.
        confidence: The chance, as the search sees it, with which what it chooses meets the target.
        give_up: When a running trial is given up.

    Raises:
        UserError: the search's seed is among those that report.
    """

    def __init__(
        self,
        space: Space,
        target: Target,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        search_seed: int,
        earlier: EarlierTrials = (),
        n_dense_trials: int | None = None,
        confidence: float = 0.8,
        give_up: GiveUpRule | None = None,
    ) -> None:
        if search_seed in seeds:
            raise UserError(
                f"search_seed: {search_seed} is among the `seeds` that report; choose another"
            )
        super().__init__(space, trials_per_arm, seeds, n_dense_trials)
        self.target, self.search_seed, self.confidence = target, search_seed, confidence
        self.give_up, self.earlier = give_up or GiveUpRule(), earlier
        self._known = {trial.id: report for trial, report in earlier}
        self._arm_of: dict[str, Arm] = {}  # by the id of a trial that was asked for
        self.arms = [Arm(name, base) for name, base in space.arms.items()]
        per_arm = len(self.dense_trials_of(self.arms[0].name, search_seed)) + trials_per_arm
        self.most_trials = len(self.arms) * (per_arm + 2 * len(seeds))
        for arm in self.arms:
            self._send(arm, self.dense_trials_of(arm.name, search_seed), self._hear_dense_search)
        if len(self.refusals) == len(self.arms):  # seen among earlier trials: nothing is started
            raise UserError(*self.refusals)

    def searched_seeds(self) -> tuple[int, ...]:
        return (self.search_seed,)

    @property
    def refusals(self) -> list[str]:
        """One line for each arm whose target can't be searched for."""
        return [arm.refusal for arm in self.arms if arm.refusal]

    # The transitions between phases.

    def _advance(self, arm: Arm) -> None:
        """Moves an arm on as far as what is known allows."""
        if arm.running or arm.waiting:
            return
        if arm.phase is Phase.DENSE_SEARCH:
            self._choose_dense(arm)
        elif arm.phase is Phase.BASELINE:
            self._set_target(arm)
        elif arm.phase is Phase.SEARCH and arm.asked >= self.trials_per_arm:
            self._choose_recipe(arm)
        elif arm.phase is Phase.REPORT:
            arm.phase = Phase.DONE

    def _choose_dense(self, arm: Arm) -> None:
        """The learning rate of the baseline: the best on the rows that choose."""
        completed = [(t, r) for t, r in arm.dense_search if r and r.usable("metric_selection")]
        if not completed:
            arm.refuse(f"target: no dense trial of {arm.name} completed")
            return
        best, _ = max(completed, key=lambda entry: entry[1].metric_selection)
        arm.phase = Phase.BASELINE
        self._send(arm, [best.replace(seed=seed) for seed in self.seeds], self._hear_dense)

    def _set_target(self, arm: Arm) -> None:
        dense = arm.mean_dense("metric_selection")
        arm.target_selection = self.target.level(dense)
        arm.target_reported = self.target.level(arm.mean_dense("metric_reported"))
        if math.isnan(dense):
            arm.refuse(f"target: the dense baseline of {arm.name} did not complete")
        elif arm.target_selection > dense:
            level = f"{arm.target_selection:.4g}"
            arm.refuse(f"target: {level} is above {arm.name}'s dense baseline, {dense:.4f}")
        else:
            arm.phase, arm.study = Phase.SEARCH, self._make_study(arm)
            self._advance(arm)

    def _make_study(self, arm: Arm) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = TargetSampler(
            self.sampler_seed(arm.name, self.search_seed),
            self.space.distributions(arm.name),
            self.space.sparsity_key,
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        for trial, report in self.earlier:
            if trial.seed in self.seeds or not report.status.measured:
                continue
            coordinates = self.space.coordinates(arm.name, trial)
            if coordinates is not None and report.finite(*_SEARCHED):
                miss = arm.target_selection - report.metric_selection
                study.add_trial(
                    optuna.trial.create_trial(
                        params=coordinates,
                        distributions=dict(self.space.distributions(arm.name)),
                        values=[report.remaining],
                        constraints={CONSTRAINT: miss},
                    )
                )
        return study

    def _choose_recipe(self, arm: Arm) -> None:
        assert arm.study is not None
        arm.choice = choose_recipe(arm.study, self.confidence)
        if arm.choice is None:
            arm.phase = Phase.DONE
            return
        arm.phase = Phase.REPORT
        arm.recipe = arm.base.replace(arm.choice.params)
        self._send(arm, [arm.recipe.replace(seed=seed) for seed in self.seeds], self._hear_reported)

    # What is heard of trials that are not the sampler's.

    @staticmethod
    def _hear_dense_search(arm: Arm, trial: Trial, last: Report | None) -> None:
        arm.dense_search.append((trial, last))

    @staticmethod
    def _hear_dense(arm: Arm, trial: Trial, last: Report | None) -> None:
        arm.dense[trial.seed] = last if last and last.usable("metric_reported") else None

    @staticmethod
    def _hear_reported(arm: Arm, trial: Trial, last: Report | None) -> None:
        arm.reported[trial.seed] = last

    def _send(
        self, arm: Arm, trials: Sequence[Trial], hear: Callable[[Arm, Trial, Report | None], None]
    ) -> None:
        """Has trials asked for; what an earlier study ran is heard at once."""
        for trial in trials:
            if trial.id in self._known:
                hear(arm, trial, self._known[trial.id])
            else:
                arm.waiting.append(trial)
        self._advance(arm)

    # Ask and tell.

    def ask(self) -> Trial | None:
        for arm in sorted(self.arms, key=lambda a: a.asked):  # in turn
            if arm.waiting:
                return self._begin(arm, arm.waiting.pop(0))
            if arm.phase is Phase.SEARCH and arm.asked < self.trials_per_arm:
                return self._ask_sampler(arm)
        return None

    def _ask_sampler(self, arm: Arm) -> Trial:
        assert arm.study is not None
        arm.asked += 1
        asked, trial = self.ask_study(arm.study, arm.name, self.search_seed)
        arm.open.setdefault(trial.id, []).append(asked)
        return self._begin(arm, trial)

    def _begin(self, arm: Arm, trial: Trial) -> Trial:
        arm.running += 1
        self._arm_of[trial.id] = arm
        return trial

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        arm, last = self._arm_of[trial.id], reports[-1] if reports else None
        arm.running -= 1
        if arm.open.get(trial.id):
            self._teach(arm, arm.open[trial.id].pop(), reports)
        else:
            hear = {
                Phase.DENSE_SEARCH: self._hear_dense_search,
                Phase.BASELINE: self._hear_dense,
                Phase.REPORT: self._hear_reported,
            }
            hear[arm.phase](arm, trial, last)
        self._advance(arm)

    def _teach(self, arm: Arm, asked: optuna.Trial, reports: Sequence[Report]) -> None:
        """Tells the sampler every end. What diverged is told as it is: a metric no better than a
        constant answer. What was stopped never had its final size. What failed says nothing."""
        assert arm.study is not None
        last = reports[-1] if reports else None
        if last is None or last.status not in _ANSWERING or not last.finite(*_SEARCHED):
            arm.study.tell(asked, state=optuna.trial.TrialState.FAIL)
            return
        miss = arm.target_selection - last.metric_selection
        asked.set_constraint(CONSTRAINT, miss)
        if last.status is Status.STOPPED:
            asked.set_user_attr(SIZE_UNKNOWN, True)
        elif last.status is Status.COMPLETED and miss <= 0:
            arm.winners.append(reports)
        arm.study.tell(asked, last.remaining)

    @property
    def finished(self) -> bool:
        return all(arm.phase in (Phase.DONE, Phase.REFUSED) for arm in self.arms)

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        """A searched trial that is late, denser and worse than those that met the target."""
        arm = self._arm_of.get(trial.id)
        if arm is None or not arm.open.get(trial.id) or not reports:
            return None
        return self.give_up.reason(reports[-1], arm.target_selection, arm.winners)

    # The answer.

    def answers(self) -> list[dict[str, Any]]:
        """What came out, one row for each arm that was searched."""
        return [self._answer(arm) for arm in self.arms if arm.phase is Phase.DONE]

    def _answer(self, arm: Arm) -> dict[str, Any]:
        """The recipe that was chosen, by what the reported seeds reached."""
        row: dict[str, Any] = {
            "fusion": arm.name,
            "target_metric": arm.target_reported,
            "dense_metric": arm.mean_dense("metric_reported"),
            "seeds": len(self.seeds),
        }
        if arm.recipe is None:
            return row
        assert isinstance(arm.recipe.pruning, Penalized)
        row |= {
            "recipe": arm.recipe.recipe,
            "trial_id": arm.recipe.replace(seed=self.seeds[0]).id,
            "multiplier": arm.recipe.pruning.multiplier,
            "learning_rate": arm.recipe.optimizer.learning_rate,
            "score_learning_rate": arm.recipe.optimizer.score_learning_rate,
        }
        ends = [r for r in arm.reported.values() if r is not None and r.status.measured]
        ends = [r for r in ends if r.finite(*_REPORTED)]
        row["seeds_failed"] = len(self.seeds) - len(ends)
        return row | (self._reported_figures(arm, ends) if ends else {})

    def _reported_figures(self, arm: Arm, ends: Sequence[Report]) -> dict[str, Any]:
        """Means over the reported seeds; a diverged one counts with what it reached."""
        assert arm.choice is not None
        margins = [report.metric_reported - arm.target_reported for report in ends]
        offsets = [
            (r.metric_reported - arm.target_reported) - (r.metric_selection - arm.target_selection)
            for r in arm.dense.values()
            if r is not None and r.finite("metric_selection")
        ]
        metric = arm.target_reported + statistics.fmean(margins)
        half_width = float(mean_half_width(np.array(margins)))
        return {
            "remaining": statistics.fmean(report.remaining for report in ends),
            "metric": metric,
            "metric_interval": None if math.isnan(half_width) else half_width,
            "met": metric >= arm.target_reported,
            "seeds_met": sum(margin >= 0 for margin in margins),
            "sureness": Sureness().chance(arm.choice, margins, offsets),
        }

    def to_json(self) -> str:
        target = {"value": self.target.value, "relative": self.target.relative}
        content = json.loads(super().to_json())
        return json.dumps(content | {"target": target, "search_seed": self.search_seed})
