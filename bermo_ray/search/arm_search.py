"""What the searches over arms share: dense trials on equal terms, samplers, preview."""

import json
from collections.abc import Iterator, Sequence

import optuna

from bermo_ray.record import Report
from bermo_ray.search.plan import Plan, PreviewRow, preview_row
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.trial import Trial

EarlierTrials = Sequence[tuple[Trial, Report]]  # of other studies, trained to their end
_LEARNING_RATE = "optimizer.learning_rate"  # what a dense trial shares with the pruned ones
_SAMPLER_SEED_STRIDE = 1009  # a prime, so that arms of studies with near seeds draw other numbers


def dense_trials(arm: Trial, rates: LogUniform | None, count: int, seed: int) -> list[Trial]:
    """Trials of an arm with nothing pruned but the same parameters frozen: at ``count`` learning
    rates evenly spread over the range, or at the arm's own where none is searched."""
    dense = arm.replace(pruning=None, freeze_embeddings=arm.embeddings_frozen, seed=seed)
    if rates is None:
        return [dense]
    shares = [(number + 0.5) / count for number in range(count)]
    return [dense.replace({_LEARNING_RATE: rates.quantile(share)}) for share in shares]


class ArmSearch(Plan):
    """Searches the arms of a space by Optuna studies, each with dense trials on equal terms: the
    learning rate of dense trials is searched too, over the same range, with a share of the trials.

    Args:
        space: The arms and the ranges of their numbers.
        trials_per_arm: Pruned trials of one search of an arm.
        seeds: Seeds that the report stands on.
        n_dense_trials: Learning rates tried without pruning in one search of an arm; a third of
            ``trials_per_arm``, and at least two, if not given.
    """

    chooses = True

    def __init__(
        self,
        space: Space,
        trials_per_arm: int,
        seeds: tuple[int, ...],
        n_dense_trials: int | None = None,
    ) -> None:
        self.space, self.trials_per_arm, self.seeds = space, trials_per_arm, seeds
        self.n_dense_trials = n_dense_trials or max(2, trials_per_arm // 3)

    def dense_trials_of(self, arm: str, seed: int) -> list[Trial]:
        """What stands for an arm's dense baseline until the best learning rate is chosen."""
        rates = self.space.ranges_of(arm).get(_LEARNING_RATE)
        return dense_trials(self.space.arms[arm], rates, self.n_dense_trials, seed)

    def sampler_seed(self, arm: str, seed: int) -> int:
        """A sampler's seed for each arm and seed."""
        index = list(self.space.arms).index(arm)
        return (seed + _SAMPLER_SEED_STRIDE * (index + 1)) % 2**32

    def ask_study(self, study: optuna.Study, arm: str, seed: int) -> tuple[optuna.Trial, Trial]:
        """What an arm's Optuna study wants to try next, as Optuna's trial and as ours."""
        asked = study.ask(dict(self.space.distributions(arm)))
        return asked, self.space.arms[arm].replace(seed=seed).replace(asked.params)

    def searched_seeds(self) -> tuple[int, ...]:
        """Seeds of the searches: each has ``trials_per_arm`` trials of every arm."""
        return self.seeds

    def known_values(self, arm: str, number: int, seed: int) -> dict[str, float]:
        """What is decided beforehand of the n-th pruned trial of a search, from 0; nothing unless
        a search says so."""
        return {}

    def representatives(self) -> list[Trial]:
        arms = self.space.arms
        pruned = [arm.replace(seed=seed) for seed in self.searched_seeds() for arm in arms.values()]
        dense = [self.dense_trials_of(arm, seed) for seed in self.seeds for arm in arms]
        return pruned + [trial for trials in dense for trial in trials]

    def varied_fields(self) -> frozenset[str]:
        ranges = [item for arm in self.space.arms for item in self.space.ranges_of(arm).items()]
        searched = {key for key, span in ranges if span.low < span.high}
        return super().varied_fields() | searched

    def preview(self) -> list[PreviewRow]:
        rows = [
            preview_row(trial) | self._shown_values(trial) | {"id": trial.id}
            for seed in self.searched_seeds()
            for arm in self.space.arms
            for trial in self.dense_trials_of(arm, seed)
        ]
        for number, seed, arm in self._slots():
            trial = self.space.arms[arm].replace(seed=seed)
            rows.append(
                preview_row(trial) | self._shown_ranges(arm, number, seed) | {"id": "by search"}
            )
        return rows

    def _slots(self) -> Iterator[tuple[int, int, str]]:
        """Number, seed and arm of every pruned trial that is searched, in the order of asking."""
        for number in range(self.trials_per_arm):
            for seed in self.searched_seeds():
                for arm in self.space.arms:
                    yield number, seed, arm

    def _shown_ranges(self, arm: str, number: int, seed: int) -> dict[str, str]:
        known = self.known_values(arm, number, seed)
        return {
            _shown_name(key): f"{known[key]:.3g}" if key in known else f"{span.low:g}–{span.high:g}"
            for key, span in self.space.ranges_of(arm).items()
        }

    def _shown_values(self, dense: Trial) -> dict[str, str]:
        if _LEARNING_RATE not in self.space.ranges:
            return {}
        return {_shown_name(_LEARNING_RATE): f"{dense.optimizer.learning_rate:.3g}"}

    def to_json(self) -> str:
        content = json.loads(self.space.to_json())
        numbers = {"seeds": list(self.seeds), "trials_per_arm": self.trials_per_arm}
        return json.dumps(content | numbers | {"n_dense_trials": self.n_dense_trials})


def _shown_name(key: str) -> str:
    return key.split(".")[-1].replace("_", " ")
