"""Parameter efficiency of one set of trials over another (docs/methods.md §4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.frontier import above_all_before, interpolate, usable


@dataclass(frozen=True)
class Efficiency:
    """``ratio``: remaining weights of the first over those of the second at the metric ``level``;
    above 1 the second is smaller. ``low`` to ``high``: 95 % of the bootstrap over ``seeds``, NaN
    of one seed. ``undecided``: share of resamples where one of them does not reach the level."""

    level: float
    ratio: float
    low: float
    high: float
    seeds: int
    undecided: float


def efficiency(
    first: pa.Table, second: pa.Table, level: float, resamples: int = 1000, seed: int = 0
) -> Efficiency:
    """Parameter efficiency of the second set of trials over the first at a metric level
    (docs/methods.md §4): along frontiers of means over seeds, with a bootstrap interval over seeds.

    A resample draws as many seeds as there are, with replacement; a recipe's mean is over those of
    its seeds that were drawn, and one with none of them is not a point of that resample.

    Args:
        first: Trials of one group; rows that are not usable are left out.
        second: Trials of the group that is compared with it.
        level: The metric at which remaining weights are compared.
        resamples: Of the bootstrap.
        seed: Of the bootstrap's draws.
    """
    sides = [_Side(usable(table)) for table in (first, second)]
    common_seeds = sides[0].seeds & sides[1].seeds
    all_seeds = sorted(sides[0].seeds | sides[1].seeds)

    def ratio(weights: np.ndarray) -> float:
        numerator, denominator = (side.remaining_at(level, all_seeds, weights) for side in sides)
        return numerator / denominator

    low = high = float("nan")
    undecided = 0.0
    if len(common_seeds) > 1:
        draws, times = _draw_seeds(len(all_seeds), resamples, seed)
        ratios = np.repeat([ratio(weights.astype(float)) for weights in draws], times)
        finite = ratios[np.isfinite(ratios)]
        undecided = 1 - len(finite) / resamples
        if len(finite):
            low, high = (float(v) for v in np.quantile(finite, [0.025, 0.975]))
    point = ratio(np.ones(len(all_seeds)))
    return Efficiency(level, point, low, high, len(common_seeds), undecided)


def _draw_seeds(count: int, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct resamples as how often each seed was drawn, and how many times each came up."""
    random = np.random.default_rng(seed)
    draws = random.multinomial(count, np.full(count, 1 / count), size=resamples)
    distinct, times = np.unique(draws, axis=0, return_counts=True)
    return distinct, times


class _Side:
    """Recipes by seeds, without those that can't be on any resample's frontier."""

    def __init__(self, table: pa.Table) -> None:
        self.seeds = set(pc.unique(table["seed"]).to_pylist())
        codes = pc.dictionary_encode(table["recipe"]).combine_chunks().indices.to_numpy()
        remaining, metric = table["remaining"].to_numpy(), table["metric"].to_numpy()
        kept = ~_never_counts(codes, remaining, metric, len(self.seeds))[codes]
        self.codes = np.unique(codes[kept], return_inverse=True)[1]
        self.remaining, self.metric = remaining[kept], metric[kept]
        self.row_seeds = table["seed"].to_numpy()[kept]

    def remaining_at(self, level: float, seeds: Sequence[int], weights: np.ndarray) -> float:
        """Remaining weights at the level, of frontiers of weighted means over seeds."""
        if len(self.codes) == 0:
            return float("nan")
        weight = weights[np.searchsorted(seeds, self.row_seeds)]
        columns = (np.ones_like(self.remaining), self.remaining, self.metric)
        sums = [np.bincount(self.codes, weight * values) for values in columns]
        drawn = sums[0] > 0
        remaining, metric = sums[1][drawn] / sums[0][drawn], sums[2][drawn] / sums[0][drawn]
        order = np.lexsort((-metric, remaining))
        remaining, metric = remaining[order], metric[order]
        starts = np.zeros(len(remaining), dtype=bool)
        starts[:1] = True
        on_front = above_all_before(metric, starts) if len(remaining) else starts
        return interpolate(remaining[on_front], metric[on_front], level)


def _never_counts(
    codes: np.ndarray, remaining: np.ndarray, metric: np.ndarray, seeds: int
) -> np.ndarray:
    """Which recipes are on no resample's frontier.

    A mean lies between a recipe's extremes: what is beaten at its best by another at its worst,
    and that other is there in every resample, never counts.
    """
    count = int(codes.max()) + 1 if len(codes) else 0
    least, most = np.full(count, np.inf), np.full(count, -np.inf)  # remaining
    best, worst = np.full(count, -np.inf), np.full(count, np.inf)  # metric
    np.minimum.at(least, codes, remaining)
    np.maximum.at(most, codes, remaining)
    np.maximum.at(best, codes, metric)
    np.minimum.at(worst, codes, metric)
    always = np.bincount(codes, minlength=count) == seeds
    order = np.argsort(most[always], kind="stable")
    reached = np.maximum.accumulate(worst[always][order]) if always.any() else np.empty(0)
    sparser = np.searchsorted(most[always][order], least, side="left")
    beaten = np.zeros(count, dtype=bool)
    has_sparser = sparser > 0
    beaten[has_sparser] = reached[sparser[has_sparser] - 1] > best[has_sparser]
    return beaten
