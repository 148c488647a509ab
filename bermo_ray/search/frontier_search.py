"""The search for frontiers: Optuna over two objectives, one study per arm and seed."""

from collections.abc import Sequence
from typing import Literal

import optuna

from bermo_ray.record import Report, Status
from bermo_ray.search.arm_search import ArmSearch
from bermo_ray.search.space import Space
from bermo_ray.trial import Trial

# The two sides of the frontier, by the report's figures: the half of dev that chooses is searched.
OBJECTIVES: tuple[tuple[str, Literal["minimize", "maximize"]], ...] = (
    ("remaining", "minimize"),
    ("metric_selection", "maximize"),
)
_NAMES = tuple(name for name, _ in OBJECTIVES)


class FrontierSearch(ArmSearch):
    """Every seed is a search of its own: of each arm, dense trials at several learning rates, then
    ``trials_per_arm`` pruned ones.

    So the frontiers that seeds find are independent of each other and of other studies, arms are
    searched alike, and what differs between seeds, the luck of the search included, is the noise
    that arms are compared with (docs/methods.md §4).

    The first trials of a search walk from the gentlest λ to the harshest: half of them, and at
    least six, for with fewer a sampler has nothing to learn from.
    """

    def __init__(
        self,
        space: Space,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        n_dense_trials: int | None = None,
    ) -> None:
        super().__init__(space, trials_per_arm, seeds, n_dense_trials)
        searches = [(arm, seed) for seed in seeds for arm in space.arms]
        self._dense = [trial for search in searches for trial in self.dense_trials_of(*search)]
        self._to_search = list(self._slots())
        self.most_trials = len(self._dense) + len(self._to_search)
        self._open: dict[str, list[tuple[optuna.Study, optuna.Trial]]] = {}  # by the trial's id
        self.studies = {search: self._make_study(*search) for search in searches}

    def _make_study(self, arm: str, seed: int) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(
            seed=self.sampler_seed(arm, seed), n_startup_trials=max(4, self._walking_trials)
        )
        return optuna.create_study(sampler=sampler, directions=[way for _, way in OBJECTIVES])

    @property
    def _walking_trials(self) -> int:
        return min(self.trials_per_arm, max(6, self.trials_per_arm // 2))

    def ask(self) -> Trial | None:
        if self._dense:
            return self._dense.pop(0)
        if self._to_search:
            return self._sample(*self._to_search.pop(0))
        return None

    def _sample(self, number: int, seed: int, arm: str) -> Trial:
        study = self.studies[arm, seed]
        if known := self.known_values(arm, number, seed):
            study.enqueue_trial(known)
        asked, trial = self.ask_study(study, arm, seed)
        self._open.setdefault(trial.id, []).append((study, asked))
        return trial

    @property
    def finished(self) -> bool:
        return not self._dense and not self._to_search

    def known_values(self, arm: str, number: int, seed: int) -> dict[str, float]:
        """Of the first trials of a search: λ at (k + u)/n of its range, where the seeds'
        offsets u part the interval from 0 to 1 evenly."""
        if self.space.sparsity_key is None or number >= self._walking_trials:
            return {}
        offset = (self.seeds.index(seed) + 0.5) / len(self.seeds)
        span = self.space.ranges_of(arm)[self.space.sparsity_key]
        return {self.space.sparsity_key: span.quantile((number + offset) / self._walking_trials)}

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        """Tells Optuna every end, so that no trial stays open.

        A diverged trial is told as dense and no better than a constant answer, so that the sampler
        keeps away from there; its own numbers (all but empty) would draw it on. A failed one, or
        one without finite numbers, says nothing of the space and is told as failed.
        """
        if trial.id not in self._open:
            return
        study, asked = self._open[trial.id].pop()
        if not self._open[trial.id]:
            del self._open[trial.id]
        values: list[float] | None = None
        last = reports[-1] if reports else None
        if last is not None and last.usable(*_NAMES):
            values = [float(getattr(last, name)) for name in _NAMES]
        elif last is not None and last.status is Status.DIVERGED:
            values = [1.0, last.constant_metric if last.finite("constant_metric") else 0.0]
        study.tell(asked, values, state=None if values else optuna.trial.TrialState.FAIL)
