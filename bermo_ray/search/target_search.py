"""The search for the fewest remaining weights that meet a target metric (docs/methods.md §4)."""

import functools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
import optuna

from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.search.arm_search import ArmSearch, EarlierTrials, dense_baseline
from bermo_ray.search.sampler import CONSTRAINT, SIZE_UNKNOWN, TargetSampler
from bermo_ray.search.space import Space
from bermo_ray.search.target import GiveUpRule, Target
from bermo_ray.trial import Penalized, Trial

_OBJECTIVES = ("metric", "remaining")
_ANSWERING = (Status.COMPLETED, Status.DIVERGED, Status.STOPPED)  # ends that tell of the metric


class Phase(Enum):
    """Where the search of one arm stands; it only ever goes forwards."""

    BASELINE = auto()  # its dense baselines run
    MATCHING = auto()  # it waits for what the matched arm reaches
    SEARCH = auto()  # its sampler is asked
    CONFIRM = auto()  # recipes that met the target are run with the other seeds
    DONE = auto()
    REFUSED = auto()  # its target can't be searched for


@dataclass
class Arm:
    """What is known of one arm."""

    name: str
    base: Trial
    phase: Phase = Phase.BASELINE
    refusal: str | None = None
    dense: dict[int, float | None] = field(default_factory=dict)  # seed -> metric; None: failed
    target_metric: float | None = None
    study: optuna.Study | None = None
    asked: int = 0  # of the sampler
    running: int = 0
    open: dict[str, list[optuna.Trial]] = field(default_factory=dict)  # by Trial.id
    results: dict[str, dict[int, Report]] = field(default_factory=dict)  # recipe -> seed -> end
    trials: dict[str, Trial] = field(default_factory=dict)  # recipe -> a trial of it
    earlier_ids: set[str] = field(default_factory=set)  # trials that other studies ran
    winners: list[Sequence[Report]] = field(default_factory=list)  # reports of those that met it
    confirmed: list[str] = field(default_factory=list)  # recipes sent to the other seeds
    to_confirm: list[Trial] = field(default_factory=list)

    def refuse(self, why: str) -> None:
        """Ends it: its target can't be searched for."""
        self.phase, self.refusal = Phase.REFUSED, why


class TargetSearch(ArmSearch):
    """Searches each arm for its sparsest trial that meets the target, then runs what it found with
    the other seeds until one recipe meets it on average.

    Each arm goes through the phases of :class:`Phase`; :meth:`_advance` holds every transition.
    A target that the dense baseline itself misses ends an arm before it is searched
    (:attr:`refusals`). With ``match`` the other arms aim at what that arm's answer reached. Earlier
    trials of the same kind are known from the start: a dense one stands for the baseline, pruned
    ones teach the sampler and, with a seed asked for, may be the answer.

    Args:
        space: The arms and the ranges of their numbers.
        target: The metric to reach.
        trials_per_arm: Trials searched for each arm, with the first seed.
        seeds: The first searches; all of them confirm.
        match: Name of the arm whose answer the others aim at.
        earlier: Finished trials of other studies.
        max_candidates: Recipes per arm that are tried with the other seeds.
        give_up: When a running trial is given up.
    """

    chooses = True

    def __init__(
        self,
        space: Space,
        target: Target,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        match: str | None = None,
        earlier: EarlierTrials = (),
        max_candidates: int = 3,
        give_up: GiveUpRule | None = None,
    ) -> None:
        if match is not None and (match not in space.arms or len(space.arms) < 2):
            known = ", ".join(space.arms)
            raise UserError(
                f"match: got {match!r}, expected one of at least two fusions searched ({known})"
            )
        super().__init__(space, trials_per_arm, seeds, earlier)
        self.target, self.match = target, match
        self.max_candidates, self.give_up = max_candidates, give_up or GiveUpRule()
        self.arms = [Arm(name, base) for name, base in space.arms.items()]
        self.arms.sort(key=lambda arm: arm.name != match)  # who is matched goes first
        self._arm_of: dict[str, Arm] = {}  # by the id of a trial that was asked for
        for arm in self.arms:
            self._take_in_earlier(arm)
        self.baselines = [
            dense_baseline(arm.base, seed)
            for arm in self.arms
            for seed in seeds
            if seed not in arm.dense
        ]
        self._waiting = list(self.baselines)
        repeats = max_candidates * (len(seeds) - 1)
        self.most_trials = len(self.baselines) + len(self.arms) * (trials_per_arm + repeats)
        for arm in self.arms:
            self._advance(arm)
        if len(self.refusals) == len(self.arms):  # seen among earlier trials: nothing is started
            raise UserError(*self.refusals)

    @property
    def refusals(self) -> list[str]:
        """One line for each arm whose target can't be searched for."""
        return [arm.refusal for arm in self.arms if arm.refusal]

    def _take_in_earlier(self, arm: Arm) -> None:
        for trial, report in self.earlier:
            baseline = dense_baseline(arm.base, trial.seed)
            is_baseline = trial.seed in self.seeds and trial.id == baseline.id
            if is_baseline and report.usable(*_OBJECTIVES):
                arm.dense.setdefault(trial.seed, report.metric)
        for trial, _, report in self.earlier_of(arm.name):
            if trial.seed in self.seeds:
                arm.trials.setdefault(trial.recipe, trial)
                arm.results.setdefault(trial.recipe, {}).setdefault(trial.seed, report)
                arm.earlier_ids.add(trial.id)

    # The transitions between phases.

    def _advance(self, arm: Arm) -> None:
        """Moves an arm on as far as what is known allows."""
        if arm.phase is Phase.BASELINE and len(arm.dense) == len(self.seeds):
            self._leave_baseline(arm)
        if arm.phase is Phase.MATCHING:
            self._leave_matching(arm)
        if arm.phase is Phase.SEARCH and arm.asked >= self.trials_per_arm and not arm.running:
            arm.phase = Phase.CONFIRM
        if arm.phase is Phase.CONFIRM and not arm.running and not arm.to_confirm:
            self._choose_candidate(arm)
            if not arm.to_confirm:
                arm.phase = Phase.DONE

    def _leave_baseline(self, arm: Arm) -> None:
        known = [metric for metric in arm.dense.values() if metric is not None]
        if not known:
            arm.refuse(f"target: the dense baseline of {arm.name} did not complete")
        elif self.match is not None and arm.name != self.match:
            arm.phase = Phase.MATCHING
        else:
            dense, level = statistics.fmean(known), self.target.level(statistics.fmean(known))
            if level > dense:
                arm.refuse(f"target: {level:.4g} is above {arm.name}'s dense baseline, {dense:.4f}")
            else:
                self._start_search(arm, level)

    def _leave_matching(self, arm: Arm) -> None:
        matched = self.arms[0]
        if matched.phase is Phase.REFUSED:
            arm.refuse(f"match: {matched.name} reached nothing to match")
        elif matched.phase is Phase.DONE:
            answer = self.best_recipe(matched)
            if answer is None:
                arm.refuse(f"match: {matched.name} did not meet its own target")
            else:
                self._start_search(arm, self.mean_over_seeds(matched, answer, "metric"))

    def _start_search(self, arm: Arm, target_metric: float) -> None:
        arm.target_metric, arm.phase = target_metric, Phase.SEARCH
        arm.study = self._make_study(arm, target_metric)

    def _make_study(self, arm: Arm, target_metric: float) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = TargetSampler(
            self.sampler_seed(arm.name), self.space.distributions, self.space.sparsity_key
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        met: list[tuple[float, dict[str, float]]] = []
        for _, coordinates, report in self.earlier_of(arm.name):
            study.add_trial(
                optuna.trial.create_trial(
                    params=coordinates,
                    distributions=dict(self.space.distributions),
                    values=[report.remaining],
                    constraints={CONSTRAINT: target_metric - report.metric},
                )
            )
            if report.metric >= target_metric:
                met.append((report.remaining, coordinates))
        # The sampler looks for what is sparser than it knows: that the best known one holds here
        # too is for the first trial to see, unless it had this seed.
        if met:
            _, coordinates = min(met, key=lambda entry: entry[0])
            recipe = arm.base.replace(**coordinates).recipe
            if self.seeds[0] not in arm.results.get(recipe, {}):
                study.enqueue_trial(coordinates)
        return study

    # Ask and tell.

    def ask(self) -> Trial | None:
        if self._waiting:
            trial = self._waiting.pop(0)
            arm = next(a for a in self.arms if dense_baseline(a.base, trial.seed).id == trial.id)
            return self._begin(arm, trial)
        for arm in sorted(self.arms, key=lambda a: a.asked):  # in turn
            if arm.phase is Phase.SEARCH and arm.asked < self.trials_per_arm:
                return self._ask_sampler(arm)
            if arm.phase is Phase.CONFIRM and arm.to_confirm:
                return self._begin(arm, arm.to_confirm.pop(0))
        return None

    def _ask_sampler(self, arm: Arm) -> Trial:
        assert arm.study is not None
        arm.asked += 1
        asked, trial = self.ask_study(arm.study, arm.name)
        arm.open.setdefault(trial.id, []).append(asked)
        return self._begin(arm, trial)

    def _begin(self, arm: Arm, trial: Trial) -> Trial:
        arm.running += 1
        self._arm_of[trial.id] = arm
        return trial

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        arm, last = self._arm_of[trial.id], reports[-1] if reports else None
        arm.running -= 1
        if trial.pruning is None:
            arm.dense[trial.seed] = last.metric if last and last.usable("metric") else None
        else:
            if last is not None:
                arm.trials.setdefault(trial.recipe, trial)
                arm.results.setdefault(trial.recipe, {})[trial.seed] = last
            if arm.open.get(trial.id):
                self._teach(arm, arm.open[trial.id].pop(), reports)
        self._advance(arm)
        for other in self.arms:  # one may wait for what this one reached
            self._advance(other)

    def _teach(self, arm: Arm, asked: optuna.Trial, reports: Sequence[Report]) -> None:
        """Tells the sampler every end. What diverged is told as it is: a metric no better than a
        constant answer. What was stopped never had its final size. What failed says nothing."""
        assert arm.study is not None
        assert arm.target_metric is not None
        last = reports[-1] if reports else None
        if last is None or last.status not in _ANSWERING or not last.finite(*_OBJECTIVES):
            arm.study.tell(asked, state=optuna.trial.TrialState.FAIL)
            return
        asked.set_constraint(CONSTRAINT, arm.target_metric - last.metric)
        if last.status is Status.STOPPED:
            asked.set_user_attr(SIZE_UNKNOWN, True)
        elif last.status is Status.COMPLETED and last.metric >= arm.target_metric:
            arm.winners.append(reports)
        arm.study.tell(asked, last.remaining)

    @property
    def finished(self) -> bool:
        ended = all(arm.phase in (Phase.DONE, Phase.REFUSED) for arm in self.arms)
        return not self._waiting and ended

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        """A searched trial that is late, denser and worse than those that met the target."""
        arm = self._arm_of.get(trial.id)
        if arm is None or not arm.open.get(trial.id) or not reports:
            return None
        return self.give_up.reason(reports[-1], arm.target_metric or 0.0, arm.winners)

    # Confirmation by the other seeds, and the answer.

    def _choose_candidate(self, arm: Arm) -> None:
        """Sends a recipe that met the target to the other seeds: the sparsest first; as far as the
        first seed turns out to have been lucky, the sparsest that met the target by that much more;
        and once one has met it on average, the best of those sparser."""
        if len(self.seeds) == 1 or len(arm.confirmed) >= self.max_candidates:
            return
        first_seed, target = self.seeds[0], arm.target_metric or 0.0
        answer = self.best_recipe(arm)
        limit = math.inf if answer is None else self.mean_over_seeds(arm, answer, "remaining")
        first = {
            recipe: by_seed[first_seed]
            for recipe, by_seed in arm.results.items()
            if first_seed in by_seed and by_seed[first_seed].usable(*_OBJECTIVES)
        }
        luck = [
            first[recipe].metric - self.mean_over_seeds(arm, recipe, "metric")
            for recipe in arm.confirmed
            if self._has_all_seeds(arm, recipe)
        ]
        spare = max(statistics.fmean(luck), 0.0) if luck else 0.0
        met = [
            recipe
            for recipe, report in first.items()
            if report.metric >= target and report.remaining < limit
            and recipe not in arm.confirmed
            and any(seed not in arm.results[recipe] for seed in self.seeds)
        ]  # fmt: skip
        likely = [recipe for recipe in met if first[recipe].metric >= target + spare]
        if likely and answer is None:
            candidate = min(likely, key=lambda recipe: first[recipe].remaining)
        elif met:
            candidate = max(met, key=lambda recipe: first[recipe].metric)
        else:
            return
        arm.confirmed.append(candidate)
        missing = (seed for seed in self.seeds if seed not in arm.results[candidate])
        arm.to_confirm = [arm.trials[candidate].replace(seed=seed) for seed in missing]

    def _has_all_seeds(self, arm: Arm, recipe: str) -> bool:
        by_seed = arm.results[recipe]
        return all(s in by_seed and by_seed[s].usable(*_OBJECTIVES) for s in self.seeds)

    def mean_over_seeds(self, arm: Arm, recipe: str, figure: str) -> float:
        """Of a recipe that has all seeds."""
        return statistics.fmean(getattr(arm.results[recipe][s], figure) for s in self.seeds)

    def best_recipe(self, arm: Arm) -> str | None:
        """The sparsest recipe that has all seeds and meets the target on average."""
        mean = functools.partial(self.mean_over_seeds, arm)
        target = arm.target_metric or math.inf
        recipes = [
            r for r in arm.results if self._has_all_seeds(arm, r) and mean(r, "metric") >= target
        ]  # fmt: skip
        # Of equal sizes, the better one.
        return min(recipes, key=lambda r: (mean(r, "remaining"), -mean(r, "metric")), default=None)

    def answers(self) -> list[dict[str, Any]]:
        """What came out, one row for each arm that was searched."""
        return [self._answer(arm) for arm in self.arms if arm.target_metric is not None]

    def _answer(self, arm: Arm) -> dict[str, Any]:
        """The recipe that met the target with the fewest remaining weights over all seeds, or else
        the one that came closest (of those with most seeds: what one seed reached may be luck)."""
        assert arm.target_metric is not None
        completed = {
            recipe: {s: r for s in self.seeds if (r := by_seed.get(s)) and r.usable(*_OBJECTIVES)}
            for recipe, by_seed in arm.results.items()
        }
        completed = {recipe: by_seed for recipe, by_seed in completed.items() if by_seed}
        answer = self.best_recipe(arm)

        def closeness(recipe: str) -> tuple[int, float]:
            reports = completed[recipe].values()
            return len(reports), statistics.fmean(report.metric for report in reports)

        recipe = answer or max(completed, key=closeness, default=None)
        row: dict[str, Any] = {
            "fusion": arm.name,
            "target_metric": arm.target_metric,
            "dense_metric": statistics.fmean(m for m in arm.dense.values() if m is not None),
            "met": answer is not None,
            "recipe": recipe,
        }
        if recipe is None:
            return row
        trial, by_seed = arm.trials[recipe], completed[recipe]
        metrics = {seed: report.metric for seed, report in by_seed.items()}
        # The first seed chose the recipe, as luck would have it: it is no witness.
        witnesses = [metric for seed, metric in metrics.items() if seed != self.seeds[0]]
        trial_id = trial.replace(seed=self.seeds[0]).id
        assert isinstance(trial.pruning, Penalized)
        return row | {
            "trial_id": trial_id,
            "earlier": trial_id in arm.earlier_ids,
            "multiplier": trial.pruning.multiplier,
            "learning_rate": trial.optimizer.learning_rate,
            "score_learning_rate": trial.optimizer.score_learning_rate,
            "remaining": statistics.fmean(report.remaining for report in by_seed.values()),
            "metric": statistics.fmean(metrics.values()),
            "seeds": len(metrics),
            "seeds_met": sum(metric >= arm.target_metric for metric in metrics.values()),
            "sureness": sureness(witnesses, arm.target_metric),
        }

    def to_json(self) -> str:
        content = json.loads(super().to_json())
        target = {"value": self.target.value, "relative": self.target.relative}
        return json.dumps(
            content | {"target": target, "match": self.match, "seeds": list(self.seeds)}
        )


def sureness(metrics: Sequence[float], target_metric: float) -> float:
    """The chance that a recipe's mean over seeds is at least the target, from a handful of seeds:
    one-sided, Student's t. NaN of one seed, or where they do not differ and nothing is known."""
    from scipy.stats import t

    n = len(metrics)
    standard_error = float(np.std(metrics, ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    gap = statistics.fmean(metrics) - target_metric if metrics else math.nan
    return float(t.cdf(gap / standard_error, n - 1)) if standard_error else math.nan
