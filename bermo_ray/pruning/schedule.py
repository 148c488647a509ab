"""Thresholds and multipliers over steps (docs/methods.md §2, Schedule)."""

from dataclasses import dataclass, replace

from bermo_ray.trial import Penalized, Pruning


@dataclass(frozen=True)
class Schedule:
    """The cubic schedule of θ and the λ that follows it.

    θ is the kept fraction v of ranked methods, and the threshold τ of soft movement.
    """

    total: int  # T, steps of the run
    warmup: int  # w, steps; also the learning rate's
    initial: float  # θ_i
    final: float  # θ_f
    flat_start: int  # iw, in multiples of w
    flat_end: int  # fw, in multiples of w
    final_multiplier: float = 0.0  # λ at the end
    target_density: float | None = None  # density at the end, where one is asked for

    @classmethod
    def from_settings(cls, settings: Pruning, total: int, warmup: int) -> "Schedule":
        """The schedule of a run of ``total`` steps, of which ``warmup`` warm up."""
        schedule = cls(
            total, warmup, *settings.schedule_ends, settings.flat_start, settings.flat_end
        )
        if not isinstance(settings, Penalized):
            return schedule
        return replace(
            schedule,
            final_multiplier=settings.multiplier,
            target_density=settings.target_density,
        )

    def find_problem(self) -> str | None:
        """One line if no step is left to prune in: (iw + fw)·w ≥ T; the reference goes on silently
        and never prunes as asked."""
        if (self.flat_start + self.flat_end) * self.warmup < self.total:
            return None
        return (
            f"pruning: no steps left between the flat ends: (flat_start={self.flat_start} + "
            f"flat_end={self.flat_end}) × warmup={self.warmup} steps >= total={self.total} "
            "steps; train longer or warm up less"
        )

    def threshold(self, step: int) -> float:
        """θ(t): flat, then θ_f + (θ_i − θ_f)c³ with c falling from 1 to 0, then flat."""
        return self._cubic(step, self.initial, self.final)

    def density(self, step: int) -> float:
        """The density asked for by step t: from 1 to the target, along the same curve."""
        return self._cubic(step, 1.0, 1.0 if self.target_density is None else self.target_density)

    def _cubic(self, step: int, initial: float, final: float) -> float:
        begin = self.flat_start * self.warmup
        end = self.total - self.flat_end * self.warmup
        if step <= begin:
            return initial
        if step > end:
            return final
        c = 1 - (step - begin) / (end - begin)
        return final + (initial - final) * c**3

    def in_flat_end(self, step: int) -> bool:
        """Whether step t lies in the flat end."""
        return step > self.total - self.flat_end * self.warmup

    def at_full_sparsity(self, step: int) -> bool:
        """Whether θ(t) has come to the end of its way: in the flat end, and where it begins."""
        return step >= self.total - self.flat_end * self.warmup

    def multiplier(self, step: int) -> float:
        """λ(t) = λ_f · θ(t)/θ_f; constant for L0, whose θ_i = θ_f."""
        return self.final_multiplier * self.threshold(step) / self.final
