"""How many layers a task can spare, with few trainings (layer dropping, §6.1)."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bermo_ray.errors import UserError
from bermo_ray.search.plan import Plan, Report, Row, row_of
from bermo_ray.trial import Trial

HALF = "first_half"  # of the dev set: counts are found on it, and verified on the other


def within(loss: float, threshold: float) -> bool:
    """Whether points lost are within a threshold; 0.976 − 0.966 is one point, not a bit more."""
    return round(loss, 9) <= threshold


@dataclass
class Line:
    """One task on one encoder: what is known of the loss by the number of layers dropped."""

    base: Trial
    deepest: int  # the most layers that the strategy can drop
    metrics: dict[int, list[float | None]] = field(default_factory=dict)  # a count -> by seed
    asked: set[int] = field(default_factory=set)


class Brackets(Plan):
    """For each threshold the largest count whose loss against none is within it, on one dev half.

    The loss rises with the count, nearly: a count that is within the threshold and one that is not
    bracket the answer, and halving the bracket finds it with log₂ L trainings instead of L. The
    thresholds share their trainings. A count costs a training for each seed, and its loss is the
    mean over them; a training that failed counts as a loss beyond every threshold.
    """

    def __init__(
        self,
        bases: Sequence[tuple[Trial, int]],
        strategy: str,
        thresholds: Sequence[float],
        seeds: tuple[int, ...],
    ) -> None:
        if not thresholds or min(thresholds) < 0:
            raise UserError(f"--thresholds: got {list(thresholds)}, expected points of 0 or more")
        self.strategy, self.seeds = strategy, seeds
        self.thresholds = sorted(set(thresholds))
        each = {base.id: Line(base, deepest) for base, deepest in bases}  # named twice, run once
        self.lines = list(each.values())
        self.most = sum(line.deepest + 1 for line in self.lines) * len(seeds)
        self._waiting: list[Trial] = []
        self._places: dict[str, tuple[Line, int, int]] = {}  # trial id -> line, count, seed's place

    def trial(self, line: Line, count: int, seed: int) -> Trial:
        """The training of so many layers dropped."""
        drop = {"strategy": self.strategy, "count": count} if count else None
        return line.base.replace(layer_drop=drop, seed=seed)

    def ask(self) -> Trial | None:
        if not self._waiting:
            for line in self.lines:
                for count in self._wanted(line):
                    line.asked.add(count)
                    for place, seed in enumerate(self.seeds):
                        trial = self.trial(line, count, seed)
                        self._places[trial.id] = (line, count, place)
                        self._waiting.append(trial)
        return self._waiting.pop(0) if self._waiting else None

    def _wanted(self, line: Line) -> list[int]:
        """Counts to train next, none twice: without a loss to compare with, no layer dropped."""
        if 0 not in line.asked:
            return [0]
        if self.losses(line).get(0) is None:
            return []
        middles = (self._middle(line, threshold) for threshold in self.thresholds)
        return sorted({m for m in middles if m is not None and m not in line.asked})

    def _middle(self, line: Line, threshold: float) -> int | None:
        low, high = self.bracket(line, threshold)
        return None if high - low <= 1 else (low + high) // 2

    def bracket(self, line: Line, threshold: float) -> tuple[int, int]:
        """The largest count known to be within the threshold, and the next above it that is not."""
        losses = self.losses(line)
        low = max((k for k, loss in losses.items() if within(loss, threshold)), default=0)
        over = (k for k, loss in losses.items() if k > low)
        return low, min(over, default=line.deepest + 1)

    def losses(self, line: Line) -> dict[int, float]:
        """Points lost against no layer dropped, by count, where all seeds have ended."""
        ended = {k: v for k, v in line.metrics.items() if len(v) == len(self.seeds)}
        none = ended.get(0)
        if none is None or any(m is None for m in none):
            return {}
        whole = statistics.fmean(m for m in none if m is not None)
        return {
            count: 100 * (whole - statistics.fmean([m for m in found if m is not None]))
            if all(m is not None for m in found)
            else float("inf")
            for count, found in ended.items()
        }

    def tell(self, trial: Trial, report: Report | None) -> None:
        line, count, _ = self._places[trial.id]
        # A whole model that is no better than a constant answer has nothing to lose.
        known = ("completed", "diverged") if count else ("completed",)
        usable = report is not None and report.get("status") in known
        found = report.get(HALF) if usable and report is not None else None
        line.metrics.setdefault(count, []).append(found)

    @property
    def finished(self) -> bool:
        """Nothing waits, nothing is out, and no line wants another count."""
        if self._waiting:
            return False
        for line in self.lines:
            out = any(len(line.metrics.get(k, [])) < len(self.seeds) for k in line.asked)
            if out or self._wanted(line):
                return False
        return True

    def examples(self) -> list[Trial]:
        return [
            self.trial(line, count, self.seeds[0])
            for line in self.lines
            for count in sorted({0, line.deepest})
        ]

    def preview(self) -> list[Row]:
        rows = []
        for line in self.lines:
            row = row_of(line.base) | {"seed": ", ".join(map(str, self.seeds))}
            rows.append(row | {"layers": "all"})
            span = f"{self.strategy} −1 to −{line.deepest}, halving"
            rows.append(row | {"layers": span})
        return rows

    def to_json(self) -> str:
        return json.dumps({
            "bases": [json.loads(line.base.to_json()) for line in self.lines],
            "strategy": self.strategy,
            "thresholds": self.thresholds,
            "seeds": self.seeds,
        })  # fmt: skip
