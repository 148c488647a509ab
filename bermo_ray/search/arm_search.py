"""What the searches over arms share: dense baselines, a warm start from earlier trials, preview."""

from collections.abc import Iterator, Sequence

import optuna

from bermo_ray.record import Report
from bermo_ray.search.plan import Plan, PreviewRow, preview_row
from bermo_ray.search.space import Space
from bermo_ray.trial import Trial

EarlierTrials = Sequence[tuple[Trial, Report]]  # of other studies, that completed
_SAMPLER_SEED_STRIDE = 1009  # a prime, so that arms of studies with near seeds draw other numbers


def dense_baseline(arm: Trial, seed: int) -> Trial:
    """An arm's trial with nothing pruned, which its pruned ones are compared with."""
    return arm.replace(pruning=None, seed=seed)


class ArmSearch(Plan):
    """Searches each arm of a space by an Optuna study of its own, after dense baselines.

    Args:
        space: The arms and the ranges of their numbers.
        trials_per_arm: Trials searched for each arm, with the first seed.
        seeds: Seeds of the baselines and of what is repeated; the first is the search's own.
        earlier: Finished trials of other studies; those of the same kind warm the search up.
    """

    def __init__(
        self,
        space: Space,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        earlier: EarlierTrials = (),
    ) -> None:
        self.space, self.trials_per_arm, self.seeds = space, trials_per_arm, seeds
        self.earlier = earlier
        self.baselines = [
            dense_baseline(arm, seed) for seed in seeds for arm in space.arms.values()
        ]

    def sampler_seed(self, arm: str) -> int:
        """A seed for each arm's sampler."""
        index = list(self.space.arms).index(arm)
        return (self.seeds[0] + _SAMPLER_SEED_STRIDE * index) % 2**32

    def earlier_of(self, arm: str) -> Iterator[tuple[Trial, dict[str, float], Report]]:
        """Earlier pruned trials that an arm might have asked for, with their coordinates."""
        for trial, report in self.earlier:
            if trial.pruning is None or not report.usable("remaining", "metric"):
                continue
            if (coordinates := self.space.coordinates(arm, trial)) is not None:
                yield trial, coordinates, report

    def ask_study(self, study: optuna.Study, arm: str) -> tuple[optuna.Trial, Trial]:
        """What an arm's Optuna study wants to try next, as Optuna's trial and as ours."""
        asked = study.ask(dict(self.space.distributions))
        return asked, self.space.arms[arm].replace(**asked.params, seed=self.seeds[0])

    def representatives(self) -> list[Trial]:
        return [*self.space.arms.values(), *self.baselines]

    def known_values(self, number: int) -> dict[str, float]:
        """What is decided beforehand of every arm's n-th trial, from 0; nothing unless a search
        says so."""
        return {}

    def preview(self) -> list[PreviewRow]:
        rows = [preview_row(trial) | {"id": trial.id} for trial in self.baselines]
        for number in range(self.trials_per_arm):
            known = self.known_values(number)
            values = {
                key.split("__")[-1].replace("_", " "): f"{known[key]:.3g}"
                if key in known
                else f"{span.low:g}–{span.high:g}"
                for key, span in self.space.ranges.items()
            }
            for arm in self.space.arms.values():
                rows.append(preview_row(arm) | values | {"id": "by search"})
        return rows

    def to_json(self) -> str:
        return self.space.to_json()
