"""What is searched: arms (Trials that differ in kind) times ranges of their numbers."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import optuna

from bermo_ray.errors import UserError
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class LogUniform:
    """A number searched on a log scale between ``low`` and ``high``, both positive."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < math.inf:
            raise UserError(f"range: got {self.low}..{self.high}, expected 0 < low <= high")

    @property
    def distribution(self) -> optuna.distributions.FloatDistribution:
        """Optuna's form of it."""
        return optuna.distributions.FloatDistribution(self.low, self.high, log=True)

    def quantile(self, share: float) -> float:
        """The number at that share of the log range.

        >>> round(LogUniform(1, 100).quantile(0.5), 9)
        10.0
        """
        return math.exp(math.log(self.low) + share * math.log(self.high / self.low))


@dataclass(frozen=True)
class Space:
    """``arms`` by name; ``ranges`` by :meth:`Trial.replace` key.

    ``sparsity_key`` names the range that sparsity rises with (λ): searches walk along it or bracket
    it first, so that a short search already sees both ends of the frontier. ``arm_ranges`` are
    those of an arm that has others than the rest, under the same keys.
    """

    arms: dict[str, Trial]
    ranges: dict[str, LogUniform]
    sparsity_key: str | None = None
    arm_ranges: dict[str, dict[str, LogUniform]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.arms or not self.ranges:
            raise UserError("the search space is empty: it needs an arm and a range")
        if all(span.low == span.high for span in self.ranges.values()):
            raise UserError("the search space is a single point: some range needs two ends")
        for name, arm in self.arms.items():  # a misspelt key is noticed here, not in a worker
            arm.replace({key: span.low for key, span in self.ranges_of(name).items()})

    def ranges_of(self, arm: str) -> dict[str, LogUniform]:
        """What is searched of an arm."""
        return self.ranges | self.arm_ranges.get(arm, {})

    def distributions(self, arm: str) -> dict[str, optuna.distributions.FloatDistribution]:
        """Optuna's form of an arm's ranges."""
        return {key: span.distribution for key, span in self.ranges_of(arm).items()}

    def coordinates(self, arm: str, trial: Trial) -> dict[str, float] | None:
        """Where in an arm's ranges a trial lies, if it differs from the arm in those and the seed
        alone; None: it is another kind of trial, or outside."""
        values = {}
        for key, span in self.ranges_of(arm).items():
            value: Any = trial
            for name in key.split("."):
                value = getattr(value, name, None)
            if value is None or not span.low <= value <= span.high:
                return None
            values[key] = float(value)
        same = self.arms[arm].replace(seed=trial.seed).replace(values)
        return values if same.id == trial.id else None

    def to_json(self) -> str:
        """All of it, as identity of what a study searches."""
        return json.dumps(
            {
                "arms": {name: json.loads(arm.to_json()) for name, arm in self.arms.items()},
                "ranges": {
                    arm: {key: [s.low, s.high] for key, s in self.ranges_of(arm).items()}
                    for arm in self.arms
                },
                "sparsity_key": self.sparsity_key,
            },
            sort_keys=True,
        )
