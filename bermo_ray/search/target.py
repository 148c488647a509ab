"""The search for the fewest remaining weights that meet a target metric (methods §4)."""

import functools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna

from bermo_ray.errors import UserError
from bermo_ray.search.plan import Plan, Report, Row, completed, row_of
from bermo_ray.search.sampler import METRIC, UNKNOWN, TargetSampler
from bermo_ray.search.space import Space
from bermo_ray.trial import Trial

CANDIDATES = 3  # recipes of an arm that are tried with the other seeds
# A running trial is given up (see `hopeless`) where it can be measured against so many that met the
# target, after so much of their training, and is worse than all of them by so much. Chosen on the
# recorded trials of benchmarks/surface.parquet and targets of 0.95x and 0.98x; without the wait,
# two in five that it stops would have met their target. At lower ones some of those stopped would
# have met it too, but denser than what was known: none would have been the answer.
WINNERS, LATE, MARGIN = 3, 0.65, 0.05
KEYS = ("metric", "remaining")


@dataclass(frozen=True)
class Target:
    """A metric to reach: ``value`` or, if ``relative``, that share of the dense baseline's."""

    value: float
    relative: bool = False

    @classmethod
    def parse(cls, text: str) -> "Target":
        """``0.885``, or ``0.99x`` of the dense baseline.

        Raises:
            UserError: it is neither, not positive, or more than the baseline itself.
        """
        try:
            found = cls(float(text.removesuffix("x")), text.endswith("x"))
        except ValueError:
            found = cls(math.nan)
        if not found.value > 0 or math.isinf(found.value):
            raise UserError(f"--target: got {text!r}, expected a metric (0.885) or a share (0.99x)")
        if found.relative and found.value > 1:
            raise UserError(f"--target: got {text}, which is above the dense baseline itself")
        return found

    def level(self, dense: float) -> float:
        """The metric that is asked for."""
        return self.value * dense if self.relative else self.value


@dataclass
class _Arm:
    """What is known of one arm."""

    name: str
    base: Trial
    dense: dict[int, float | None] = field(default_factory=dict)  # seed -> metric; None: failed
    target: float | None = None
    study: optuna.Study | None = None
    asked: int = 0
    open: dict[str, list[optuna.Trial]] = field(default_factory=dict)  # by Trial.id
    found: dict[str, dict[int, Report]] = field(default_factory=dict)  # recipe -> seed -> end
    trials: dict[str, Trial] = field(default_factory=dict)  # recipe -> a trial of it
    before: set[str] = field(default_factory=set)  # ids of those that earlier studies ran
    winners: list[Sequence[Report]] = field(default_factory=list)  # curves that met the target
    confirming: list[Trial] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)  # recipes sent to the other seeds
    out: int = 0  # trials under way
    refused: str | None = None


class TargetSearch(Plan):
    """Searches each arm for its sparsest trial that meets the target, then runs what it found with
    the other seeds until one recipe meets it on average.

    A target that the dense baseline itself misses ends an arm before it is searched
    (:attr:`refused`). With ``match`` the other arms aim at what that arm's answer reached. Earlier
    trials of the same kind are known from the start: a dense one stands for the baseline, pruned
    ones teach the sampler and, with a seed asked for, may be the answer.
    """

    def __init__(
        self,
        space: Space,
        target: Target,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        match: str | None = None,
        earlier: Sequence[tuple[Trial, Report]] = (),
    ) -> None:
        if match is not None and (match not in space.arms or len(space.arms) < 2):
            known = ", ".join(space.arms)
            raise UserError(
                f"--match: got {match!r}, expected one of at least two fusions searched ({known})"
            )
        self.space, self.target, self.match = space, target, match
        self.trials_per_arm, self.seeds = trials_per_arm, seeds
        self.arms = [_Arm(name, base) for name, base in space.arms.items()]
        # Who is matched goes first.
        self.arms.sort(key=lambda arm: arm.name != match)
        again = CANDIDATES * (len(seeds) - 1)
        self.most = len(self.arms) * (trials_per_arm + len(seeds) + again)
        self._of: dict[str, _Arm] = {}
        self._earlier: dict[str, list[tuple[dict[str, float], Report]]] = {}
        for trial, report in earlier:
            self._know(trial, report)
        self._waiting = [
            dense
            for arm in self.arms
            for seed in seeds
            if (dense := self.dense(arm.base, seed)) and seed not in arm.dense
        ]
        self.most -= sum(len(arm.dense) for arm in self.arms)
        for arm in self.arms:
            self._aim(arm)
        if len(self.refused) == len(self.arms):  # seen among earlier trials: nothing is started
            raise UserError(*self.refused)

    @staticmethod
    def dense(base: Trial, seed: int) -> Trial:
        """An arm's baseline: nothing pruned."""
        return base.replace(pruning=None, seed=seed)

    @property
    def refused(self) -> list[str]:
        """A line for each arm whose target can't be searched for."""
        return [arm.refused for arm in self.arms if arm.refused]

    @property
    def targets(self) -> dict[str, float]:
        """The metric that each arm is asked for, as far as it is known."""
        return {arm.name: arm.target for arm in self.arms if arm.target is not None}

    def _know(self, trial: Trial, report: Report) -> None:
        """Takes in an earlier trial, if it is of a kind that is searched here."""
        if not completed(report, "metric", "remaining"):
            return
        for arm in self.arms:
            if trial.pruning is None:
                if trial.seed in self.seeds and trial.id == self.dense(arm.base, trial.seed).id:
                    arm.dense.setdefault(trial.seed, float(report["metric"]))
            elif (place := self.space.place(arm.name, trial)) is not None:
                self._earlier.setdefault(arm.name, []).append((place, report))
                if trial.seed in self.seeds:
                    arm.trials.setdefault(trial.recipe, trial)
                    arm.found.setdefault(trial.recipe, {}).setdefault(trial.seed, report)
                    arm.before.add(trial.id)

    def _aim(self, arm: _Arm) -> None:
        """Sets an arm's target as soon as what it depends on is known."""
        if arm.target is not None or arm.refused or len(arm.dense) < len(self.seeds):
            return
        known = [m for m in arm.dense.values() if m is not None]
        if not known:
            arm.refused = f"--target: the dense baseline of {arm.name} did not complete"
            return
        dense = statistics.fmean(known)
        if self.match is not None and arm.name != self.match:
            other = self.arms[0]
            if other.refused:
                arm.refused = f"--match: {other.name} reached nothing to match"
            elif self._done(other):
                reached = self.answer(other)
                if reached is None:
                    arm.refused = f"--match: {other.name} did not meet its own target"
                else:
                    arm.target = self._mean(other, reached, "metric")
        else:
            level = self.target.level(dense)
            if level > dense:
                arm.refused = (
                    f"--target: {level:.4g} is above {arm.name}'s dense baseline, {dense:.4f}"
                )
            else:
                arm.target = level
        if arm.target is not None:
            arm.study = self._study(arm)

    def _study(self, arm: _Arm) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        index = list(self.space.arms).index(arm.name)
        sampler = TargetSampler(
            self.seeds[0] + 1009 * index, self.space.distributions, self.space.spread
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        assert arm.target is not None
        for place, report in self._earlier.get(arm.name, []):
            study.add_trial(
                optuna.trial.create_trial(
                    params=place,
                    distributions=dict(self.space.distributions),
                    values=[float(report["remaining"])],
                    constraints={METRIC: arm.target - float(report["metric"])},
                )
            )
        # The sampler looks for what is sparser than it knows: that the best known one holds here
        # too is for the first trial to see, unless it had this seed.
        met = [e for e in self._earlier.get(arm.name, []) if e[1]["metric"] >= arm.target]
        if met:
            place, _ = min(met, key=lambda e: float(e[1]["remaining"]))
            recipe = arm.base.replace(**place).recipe
            if self.seeds[0] not in arm.found.get(recipe, {}):
                study.enqueue_trial(place)
        return study

    def ask(self) -> Trial | None:
        if self._waiting:
            trial = self._waiting.pop(0)
            arm = next(a for a in self.arms if self.dense(a.base, trial.seed).id == trial.id)
            return self._begin(arm, trial)
        ready = [arm for arm in self.arms if arm.target is not None]
        for arm in sorted(ready, key=lambda a: a.asked):  # in turn
            if arm.asked < self.trials_per_arm:
                arm.asked += 1
                assert arm.study is not None
                asked = arm.study.ask(dict(self.space.distributions))
                trial = arm.base.replace(**asked.params, seed=self.seeds[0])
                arm.open.setdefault(trial.id, []).append(asked)
                return self._begin(arm, trial)
            if arm.confirming:
                return self._begin(arm, arm.confirming.pop(0))
        return None

    def _begin(self, arm: _Arm, trial: Trial) -> Trial:
        arm.out += 1
        self._of[trial.id] = arm
        return trial

    def tell(self, trial: Trial, report: Report | None) -> None:
        arm = self._of[trial.id]
        arm.out -= 1
        if trial.pruning is None:
            good = completed(report, "metric")
            arm.dense[trial.seed] = float(report["metric"]) if good and report else None
        else:
            if report is not None:
                arm.trials.setdefault(trial.recipe, trial)
                arm.found.setdefault(trial.recipe, {})[trial.seed] = report
            if arm.open.get(trial.id):
                self._teach(arm, arm.open[trial.id].pop(), report)
        if arm.target is not None and not arm.out and arm.asked >= self.trials_per_arm:
            self._confirm(arm)
        for other in self.arms:
            self._aim(other)

    def _teach(self, arm: _Arm, asked: optuna.Trial, report: Report | None) -> None:
        """Tells the sampler every end. What diverged is told as it is: a metric no better than a
        constant answer. What was stopped never had its final size. What failed says nothing."""
        assert arm.study is not None
        assert arm.target is not None
        metric = math.nan if report is None else float(report.get("metric", math.nan))
        size = math.nan if report is None else float(report.get("remaining", math.nan))
        status = None if report is None else report.get("status")
        known = status in ("completed", "diverged", "stopped")
        if not known or not math.isfinite(metric) or not math.isfinite(size):
            arm.study.tell(asked, state=optuna.trial.TrialState.FAIL)
            return
        asked.set_constraint(METRIC, arm.target - metric)
        if status == "stopped":
            asked.set_user_attr(UNKNOWN, True)
        elif status == "completed" and metric >= arm.target and report is not None:
            arm.winners.append(report.get("curve", ()))
        arm.study.tell(asked, size)

    def _confirm(self, arm: _Arm) -> None:
        """Sends recipes that met the target to the other seeds, one after the other: the sparsest
        first; as far as the first seed turns out to have been lucky, the sparsest that met the
        target by that much more; and once one has met it on average, the best of those sparser."""
        if len(self.seeds) == 1 or arm.confirming or len(arm.confirmed) >= CANDIDATES:
            return
        first, target, answer = self.seeds[0], arm.target or 0.0, self.answer(arm)
        limit = math.inf if answer is None else self._mean(arm, answer, "remaining")
        ends = {
            recipe: (float(found[first]["metric"]), float(found[first]["remaining"]))
            for recipe, found in arm.found.items()
            if completed(found.get(first), *KEYS)
        }
        luck = [
            ends[r][0] - self._mean(arm, r, "metric") for r in arm.confirmed if self._whole(arm, r)
        ]
        extra = max(statistics.fmean(luck), 0.0) if luck else 0.0
        met = [
            recipe
            for recipe, (metric, remaining) in ends.items()
            if metric >= target and remaining < limit and recipe not in arm.confirmed
            and any(seed not in arm.found[recipe] for seed in self.seeds)
        ]  # fmt: skip
        likely = [recipe for recipe in met if ends[recipe][0] >= target + extra]
        if likely and answer is None:
            best = min(likely, key=lambda recipe: ends[recipe][1])
        elif met:
            best = max(met, key=lambda recipe: ends[recipe][0])
        else:
            return
        arm.confirmed.append(best)
        missing = (seed for seed in self.seeds if seed not in arm.found[best])
        arm.confirming = [arm.trials[best].replace(seed=seed) for seed in missing]

    def _whole(self, arm: _Arm, recipe: str) -> bool:
        """Whether a recipe completed with all seeds."""
        return all(completed(arm.found[recipe].get(seed), *KEYS) for seed in self.seeds)

    def answer(self, arm: _Arm) -> str | None:
        """The sparsest recipe that has all seeds and meets the target on average."""
        whole = [
            recipe
            for recipe in arm.found
            if self._whole(arm, recipe)
            and self._mean(arm, recipe, "metric") >= (arm.target or math.inf)
        ]
        mean = functools.partial(self._mean, arm)  # of equal sizes, the better one
        return min(whole, key=lambda r: (mean(r, "remaining"), -mean(r, "metric")), default=None)

    def _mean(self, arm: _Arm, recipe: str, key: str) -> float:
        return statistics.fmean(float(arm.found[recipe][seed][key]) for seed in self.seeds)

    def answers(self) -> list[dict[str, Any]]:
        """What came out, a row for each arm that was searched: the recipe that met the target with
        the fewest remaining weights over all seeds, or else the one that came closest (of those
        with all seeds, if any: what one seed reached alone may be luck)."""
        rows = []
        for arm in self.arms:
            if arm.target is None:
                continue
            met = self.answer(arm)
            whole = {
                recipe: [ends[seed] for seed in self.seeds if completed(ends.get(seed), *KEYS)]
                for recipe, ends in arm.found.items()
            }
            whole = {recipe: ends for recipe, ends in whole.items() if ends}
            recipe = met or max(
                whole,
                key=lambda r: (len(whole[r]), statistics.fmean(e["metric"] for e in whole[r])),
                default=None,
            )
            known = [m for m in arm.dense.values() if m is not None]
            row: dict[str, Any] = {
                "fusion": arm.name,
                "target": arm.target,
                "dense": statistics.fmean(known),
                "met": met is not None,
                "recipe": recipe,
            }
            if recipe is not None:
                trial, ends = arm.trials[recipe], whole[recipe]
                metrics = [float(end["metric"]) for end in ends]
                # The first seed chose the recipe, as luck would have it: it is no witness.
                fair = [
                    float(end["metric"])
                    for seed in self.seeds[1:]
                    if completed(end := arm.found[recipe].get(seed), *KEYS) and end
                ]
                assert trial.pruning is not None
                trial_id = trial.replace(seed=self.seeds[0]).id
                row |= {
                    "trial_id": trial_id,
                    "earlier": trial_id in arm.before,
                    "final_lambda": trial.pruning.final_lambda,
                    "learning_rate": trial.optimizer.learning_rate,
                    "mask_rate": trial.optimizer.mask_rate,
                    "remaining": statistics.fmean(float(end["remaining"]) for end in ends),
                    "metric": statistics.fmean(metrics),
                    "seeds": len(metrics),
                    "seeds_met": sum(metric >= arm.target for metric in metrics),
                    "sure": sure(fair, arm.target),
                }
            rows.append(row)
        return rows

    def _done(self, arm: _Arm) -> bool:
        searched = arm.target is not None and arm.asked >= self.trials_per_arm
        return bool(arm.refused) or (searched and not arm.out and not arm.confirming)

    @property
    def finished(self) -> bool:
        return not self._waiting and all(self._done(arm) for arm in self.arms)

    def hopeless(self, trial: Trial, curve: Sequence[Report]) -> str | None:
        """A trial that is late, denser and worse than those that met the target have been.

        Trials start dense and lose weights as they go, so a dense early epoch and a sparse late
        one are never compared: only winners that ended at least as sparse count, and of them only
        what they were when at most as dense and after no more steps.
        """
        arm = self._of.get(trial.id)
        if arm is None or not arm.open.get(trial.id) or not curve:
            return None
        now = curve[-1]
        if not all(math.isfinite(now.get(k, math.nan)) for k in ("metric", "density", "step")):
            return None
        if now["metric"] >= (arm.target or 0.0):
            return None
        sparser = [w for w in arm.winners if w and w[-1].get("density", 1.0) <= now["density"]]
        if len(sparser) < WINNERS:
            return None
        if now["step"] < LATE * max(w[-1].get("step", math.inf) for w in sparser):
            return None
        for winner in sparser:
            fair = (
                r for r in winner
                if r.get("step", math.inf) <= now["step"] and r["density"] <= now["density"]
            )  # fmt: skip
            if not any(r.get("metric", 0.0) >= now["metric"] + MARGIN for r in fair):
                return None
        return (
            f"hopeless: {now['metric']:.4f} at density {now['density']:.2f}, where all "
            f"{len(sparser)} trials that met {arm.target:.4f} and got as sparse were better"
        )

    def examples(self) -> list[Trial]:
        return [*self.space.arms.values(), *(self.dense(a.base, self.seeds[0]) for a in self.arms)]

    def preview(self) -> list[Row]:
        rows = [row_of(trial) | {"id": trial.id} for trial in self._waiting]
        spans = {
            key.split("__")[-1].replace("_", " "): f"{span.low:g}–{span.high:g}"
            for key, span in self.space.ranges.items()
        }
        for arm in self.arms:
            rows += [row_of(arm.base) | spans | {"id": "by search"}] * self.trials_per_arm
        return rows

    def to_json(self) -> str:
        content = json.loads(self.space.to_json())
        asked = [self.target.value, self.target.relative, self.match]
        return json.dumps(content | {"target": asked, "seeds": self.seeds})


def sure(metrics: Sequence[float], target: float) -> float:
    """The chance that a recipe's mean over seeds is at least the target, from a handful of seeds:
    one-sided, Student's t. NaN of one seed, or where they do not differ and nothing is known."""
    from scipy.stats import t

    error = float(np.std(metrics, ddof=1)) / math.sqrt(len(metrics)) if len(metrics) > 1 else 0.0
    gap = statistics.fmean(metrics) - target if metrics else math.nan
    return float(t.cdf(gap / error, len(metrics) - 1)) if error else math.nan
