"""Parameter efficiency of one set of trials over another (docs/methods.md §4)."""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.results.frontier import above_all_before, interpolate, usable

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Efficiency:
    """How much smaller the second set of trials is than the first at a metric.

    Attributes:
        level: The metric.
        ratio: Remaining weights of the first over those of the second: above 1 the second is
            smaller. NaN where one of them does not reach the level in some seed.
        low: Lower end of the 95 % interval of the ratio; NaN of one seed.
        high: Its upper end.
        seeds: How many there are.
        unreached: In how many of them one of the two does not reach the level.
    """

    level: float
    ratio: float
    low: float
    high: float
    seeds: int
    unreached: int


def efficiency(first: pa.Table, second: pa.Table, level: float) -> Efficiency:
    """Parameter efficiency of the second set of trials over the first at a metric level.

    Seeds are the unit: each seed's own frontier gives its log remaining weights at the level, and
    the difference of the two means of logs has a Welch t interval. Swapping the two sets gives the
    reciprocal. Of each set, the recipes with most seeds count.

    Args:
        first: Trials of one group; rows that are not usable are left out.
        second: Trials of the group that is compared with it, with the same seeds.
        level: The metric at which remaining weights are compared.

    Raises:
        UserError: the two have different seeds.
    """
    logs = [_log_remaining_by_seed(usable(table), level) for table in (first, second)]
    seeds = [sorted(by_seed) for by_seed in logs]
    if seeds[0] != seeds[1]:
        raise UserError(
            f"seeds: one has {_listed(seeds[0])}, the other {_listed(seeds[1])}; compare what was "
            "run with the same"
        )
    a, b = (np.array([by_seed[seed] for seed in seeds[0]]) for by_seed in logs)
    unreached = int(np.sum(~np.isfinite(a - b)))
    if unreached or len(a) == 0:
        return Efficiency(level, math.nan, math.nan, math.nan, len(a), unreached)
    difference, half_width = float(a.mean() - b.mean()), _welch_half_width(a, b)
    low, high = math.exp(difference - half_width), math.exp(difference + half_width)
    return Efficiency(level, math.exp(difference), low, high, len(a), 0)


def _listed(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds)) or "none"


def _log_remaining_by_seed(table: pa.Table, level: float) -> dict[int, float]:
    """Log remaining weights at the level along each seed's own frontier; NaN where it does not
    reach it."""
    recipes = pc.dictionary_encode(table["recipe"]).combine_chunks().indices.to_numpy()
    seeds, remaining = table["seed"].to_numpy(), table["remaining"].to_numpy()
    if len(seeds) == 0:
        return {}
    pairs = np.unique(np.stack([recipes, seeds]), axis=1)
    counts = np.bincount(pairs[0], minlength=int(recipes.max()) + 1)
    kept = counts[recipes] == counts.max()
    metric = table["metric"].to_numpy()
    return {
        int(seed): _log_remaining_at(remaining[rows], metric[rows], level)
        for seed in np.unique(seeds[kept])
        for rows in [kept & (seeds == seed)]
    }


def _log_remaining_at(remaining: np.ndarray, metric: np.ndarray, level: float) -> float:
    order = np.lexsort((-metric, remaining))
    remaining, metric = remaining[order], metric[order]
    starts = np.zeros(len(remaining), dtype=bool)
    starts[:1] = True
    on_front = above_all_before(metric, starts)
    return math.log(interpolate(remaining[on_front], metric[on_front], level))


def _welch_half_width(a: np.ndarray, b: np.ndarray) -> float:
    """Half of the 95 % interval of the difference of two means, by Welch's t; NaN of one each."""
    from scipy.stats import t

    if len(a) < 2 or len(b) < 2:
        return math.nan
    errors = [float(values.var(ddof=1)) / len(values) for values in (a, b)]
    if sum(errors) == 0:
        return 0.0
    degrees = sum(errors) ** 2 / sum(
        e**2 / (len(v) - 1) for e, v in zip(errors, (a, b), strict=True)
    )
    return float(t.ppf((1 + _CONFIDENCE) / 2, degrees)) * math.sqrt(sum(errors))
