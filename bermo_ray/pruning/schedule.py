"""Thresholds and multipliers over steps (methods §2, Schedule)."""

from dataclasses import dataclass

from bermo_ray import trial as spec


@dataclass(frozen=True)
class Schedule:
    """The cubic schedule of θ and the λ that follows it.

    ``total`` is T, ``warmup`` is w (also the learning rate's), ``flat_start`` and ``flat_end`` are
    iw and fw, multiples of w.
    """

    total: int
    warmup: int
    initial: float
    final: float
    flat_start: int
    flat_end: int
    final_lambda: float
    target: float | None = None

    @classmethod
    def of(cls, pruning: spec.Pruning, total: int, warmup: int) -> "Schedule":
        """The schedule of a run of ``total`` steps."""
        return cls(
            total,
            warmup,
            pruning.initial_threshold,
            pruning.final_threshold,
            pruning.initial_warmup,
            pruning.final_warmup,
            pruning.final_lambda,
            pruning.target,
        )

    def problem(self) -> str | None:
        """One line if no step is left to prune in: (iw + fw)·w ≥ T; the reference goes on silently
        and never prunes as asked."""
        if (self.flat_start + self.flat_end) * self.warmup < self.total:
            return None
        return (
            f"pruning: no steps left between the flat ends: (initial_warmup={self.flat_start} + "
            f"final_warmup={self.flat_end}) × warmup={self.warmup} steps >= total={self.total} "
            "steps; train longer or warm up less"
        )

    def threshold(self, step: int) -> float:
        """θ(t): flat, then θ_f + (θ_i − θ_f)c³ with c falling from 1 to 0, then flat."""
        return self._cubic(step, self.initial, self.final)

    def density(self, step: int) -> float:
        """The density asked for by step t: from 1 to the target, along the same curve."""
        return self._cubic(step, 1.0, 1.0 if self.target is None else self.target)

    def _cubic(self, step: int, initial: float, final: float) -> float:
        begin = self.flat_start * self.warmup
        end = self.total - self.flat_end * self.warmup
        if step <= begin:
            return initial
        if step > end:
            return final
        c = 1 - (step - begin) / (end - begin)
        return final + (initial - final) * c**3

    def flat(self, step: int) -> bool:
        """Whether step t lies in the flat end."""
        return step > self.total - self.flat_end * self.warmup

    def multiplier(self, step: int) -> float:
        """λ(t) = final_lambda · θ(t)/θ_f; constant for L0, whose θ_i = θ_f."""
        return self.final_lambda * self.threshold(step) / self.final
