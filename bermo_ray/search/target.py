"""A metric to reach, and when a running trial can be given up for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bermo_ray.errors import UserError
from bermo_ray.record import Report


@dataclass(frozen=True)
class Target:
    """A metric to reach: ``value`` or, if ``relative``, that share of the dense baseline's."""

    value: float
    relative: bool = False

    @classmethod
    def parse(cls, text: str) -> "Target":
        """``0.885``, or ``0.99x`` of the dense baseline.

        >>> Target.parse("0.99x")
        Target(value=0.99, relative=True)

        Raises:
            UserError: it is neither, not positive, or more than the baseline itself.
        """
        try:
            target = cls(float(text.removesuffix("x")), text.endswith("x"))
        except ValueError:
            target = cls(math.nan)
        if not target.value > 0 or math.isinf(target.value):
            raise UserError(f"target: got {text!r}, expected a metric (0.885) or a share (0.99x)")
        if target.relative and target.value > 1:
            raise UserError(f"target: got {text}, which is above the dense baseline itself")
        return target

    def level(self, dense_metric: float) -> float:
        """The metric that is asked for."""
        return self.value * dense_metric if self.relative else self.value


@dataclass(frozen=True)
class GiveUpRule:
    """Gives up a running trial that is late, denser and worse than those that met the target.

    Trials start dense and lose weights as they go, so a dense early epoch and a sparse late one are
    never compared: only winners that ended at least as sparse count, and of them only what they
    were when at most as dense and after no more steps.

    The defaults were chosen on the recorded trials of benchmarks/surface.parquet and targets of
    0.95x and 0.98x; without the wait, two in five that it stops would have met their target. At
    lower targets some of those stopped would have met it too, but denser than what was known: none
    would have been the answer.

    Args:
        min_winners: So many trials that met the target are needed to compare with.
        min_progress: Share of the winners' steps before which nothing is given up.
        margin: By how much the metric must be worse than every winner's.
    """

    min_winners: int = 3
    min_progress: float = 0.65
    margin: float = 0.05

    def reason(
        self, now: Report, target_metric: float, winners: Sequence[Sequence[Report]]
    ) -> str | None:
        """Why the trial need not go on; None: let it. ``winners``: all reports of each trial that
        met the target."""
        if not now.finite("metric_selection", "density") or now.metric_selection >= target_metric:
            return None
        sparser = [w for w in winners if w and w[-1].density <= now.density]
        if len(sparser) < self.min_winners:
            return None
        if now.step < self.min_progress * max(w[-1].step for w in sparser):
            return None
        if not all(self._beats(winner, now) for winner in sparser):
            return None
        return (
            f"given up: {now.metric_selection:.4f} at density {now.density:.2f}, where all "
            f"{len(sparser)} trials that met {target_metric:.4f} and got as sparse were better"
        )

    def _beats(self, winner: Sequence[Report], now: Report) -> bool:
        comparable = (r for r in winner if r.step <= now.step and r.density <= now.density)
        return any(r.metric_selection >= now.metric_selection + self.margin for r in comparable)
