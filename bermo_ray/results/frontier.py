"""Parameter-efficiency frontiers: pure functions of the results table.

Which rows count is one rule everywhere (:func:`usable`): trials that completed and have finite
numbers. What diverged, failed, was stopped or still runs is no point of a frontier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError, unknown

GROUP = ("task", "backbone", "fusion", "method")
Way = Literal["min", "max"]


def usable(table: pa.Table, columns: Sequence[str] = ("remaining", "metric")) -> pa.Table:
    """The rows that completed with finite numbers in these columns."""
    good = pc.equal(table["status"], "completed")
    for name in columns:
        good = pc.and_(good, pc.is_finite(table[name]))
    return table.filter(pc.fill_null(good, False))


def frontier(table: pa.Table, by: Sequence[str] = GROUP) -> pa.Table:
    """The non-dominated trials (remaining ↓, metric ↑) of each group.

    A row stays when no other of its group has at most its remaining weights and at least its
    metric, one of them strictly better; of equal rows the first stays. Sorted by group, then from
    sparse to dense; the schema is the table's.
    """
    table = usable(table)
    order = [(key, "ascending") for key in by]
    order += [("remaining", "ascending"), ("metric", "descending")]
    table = table.take(pc.sort_indices(table, order))
    if table.num_rows == 0:
        return table
    starts = _starts(table, by)
    return table.filter(pa.array(_rising(table["metric"].to_numpy(), starts)))


def _starts(table: pa.Table, by: Sequence[str]) -> np.ndarray:
    """Where a new group begins in a sorted table."""
    starts = np.zeros(table.num_rows, dtype=bool)
    starts[:1] = True
    for key in by:
        column = pc.dictionary_encode(table[key], null_encoding="encode").combine_chunks()
        codes = column.indices.to_numpy()
        starts[1:] |= codes[1:] != codes[:-1]
    return starts


def _rising(metric: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which entries beat all before them in their group; shifting each group above the one before
    lets one running maximum serve them all."""
    group = np.cumsum(starts) - 1
    lifted = metric + group * 2 * (np.ptp(metric) + 1.0)
    on = starts.copy()
    on[1:] |= lifted[1:] > np.maximum.accumulate(lifted)[:-1]
    return on


def non_dominated(table: pa.Table, objectives: Mapping[str, Way]) -> pa.Table:
    """The rows that no other beats on every objective at once, of any number of columns.

    Of rows equal in all objectives the first stays. Rows keep their order.

    Raises:
        UserError: a column that the table does not have.
    """
    for name in objectives:
        if name not in table.column_names:
            raise UserError(unknown("column", name, table.column_names))
    table = usable(table, list(objectives))
    signs = {"min": 1.0, "max": -1.0}
    costs = np.stack([signs[way] * table[n].to_numpy() for n, way in objectives.items()], axis=1)
    _, first = np.unique(costs, axis=0, return_index=True)
    # By the sum of ranks a row comes after every row that dominates it: unique rows are sorted, so
    # that of rows equal in one objective the one that dominates has the lower rank in it too.
    order = np.argsort(costs[first], axis=0, kind="stable")
    ranks = np.argsort(order, axis=0).sum(axis=1)
    left = first[np.argsort(ranks, kind="stable")]
    kept: list[int] = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        left = left[np.any(costs[left] < costs[best], axis=1)]
    return table.take(pa.array(sorted(kept), pa.int64()))


def hypervolume(
    table: pa.Table, remaining: float = 1.0, metric: float = 0.0, by: Sequence[str] = GROUP
) -> pa.Table:
    """How good each group's frontier is in one number: the area of (remaining, metric) that it
    dominates, up to the reference point. Trials beyond the reference add nothing.

    ``by``'s columns, ``hypervolume`` and ``trials`` on the frontier.
    """
    inside = usable(table)
    inside = inside.filter(
        pc.and_(
            pc.less(inside["remaining"], remaining), pc.greater(inside["metric"], metric)
        )
    )  # fmt: skip
    front = frontier(inside, by)
    starts = _starts(front, by)
    x, y = front["remaining"].to_numpy(), front["metric"].to_numpy()
    # Sparse to dense: each point holds its metric up to the next one's place, or the reference.
    following = np.where(np.append(starts[1:], True), remaining, np.append(x[1:], remaining))
    area = (following[: len(x)] - x) * (y - metric)
    places = np.flatnonzero(starts)
    sums = np.add.reduceat(area, places) if len(places) else np.empty(0)
    counts = np.diff(np.append(places, len(x)))
    groups = front.select(list(by)).take(places)
    groups = groups.append_column("hypervolume", pa.array(sums, pa.float64()))
    return groups.append_column("trials", pa.array(counts, pa.int64()))


def remaining_at(front: pa.Table, metric: float) -> float:
    """Remaining weights at a metric level, on straight lines between the points of one frontier.

    A level that the sparsest point meets takes that point's; one above the best point's is NaN.
    """
    return _interpolated(front["remaining"].to_numpy(), front["metric"].to_numpy(), metric)


def _interpolated(remaining: np.ndarray, metric: np.ndarray, level: float) -> float:
    if len(metric) == 0 or level > metric[-1] + 1e-12:  # means may differ in their last bit
        return float("nan")
    return float(np.interp(level, metric, remaining))


def over_seeds(table: pa.Table) -> pa.Table:
    """Trials that differ in nothing but the seed, as one row: the first's, with the means of
    ``metric`` and ``remaining``, how many ``seeds``, the sample deviation ``metric_sd`` and half
    the width of the mean's 95 % interval ``metric_interval`` (Student's t; both null of one seed).
    Rows that are not :func:`usable` are left out."""
    from scipy.stats import t

    table = usable(table)
    table = table.append_column("place", pa.array(np.arange(table.num_rows)))
    merged = table.group_by("recipe", use_threads=False).aggregate([
        ("place", "min"), ("metric", "mean"), ("remaining", "mean"), ("metric", "count"),
        ("metric", "stddev", pc.VarianceOptions(ddof=1, min_count=2)),
    ])  # fmt: skip
    first = table.take(merged["place_min"]).drop_columns(["place"])
    for name in ("metric", "remaining"):
        place = first.schema.get_field_index(name)
        first = first.set_column(place, first.schema.field(name), merged[f"{name}_mean"])
    first = first.append_column("seeds", merged["metric_count"])
    first = first.append_column("metric_sd", merged["metric_stddev"])
    count = merged["metric_count"].to_numpy()
    wide = t.ppf(0.975, np.maximum(count - 1, 1)) / np.sqrt(count)
    return first.append_column("metric_interval", pc.multiply(merged["metric_stddev"], wide))


def with_most_seeds(merged: pa.Table, by: Sequence[str] = GROUP) -> pa.Table:
    """Of :func:`over_seeds`, the recipes that have as many seeds as any of their group: what a
    single lucky seed reached is no match for a mean of several."""
    if merged.num_rows == 0:
        return merged
    merged = merged.take(pc.sort_indices(merged, [(key, "ascending") for key in by]))
    starts, seeds = _starts(merged, by), merged["seeds"].to_numpy()
    most = np.maximum.reduceat(seeds, np.flatnonzero(starts))
    return merged.filter(pa.array(seeds == most[np.cumsum(starts) - 1]))


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
    """Parameter efficiency of the second set of trials over the first at a metric level (methods
    §4): along frontiers of means over seeds, with a bootstrap interval over the seeds.

    A resample draws as many seeds as there are, with replacement; a recipe's mean is over those of
    its seeds that were drawn, and one with none of them is not a point of that resample.
    """
    sides = [_Side(usable(table)) for table in (first, second)]
    seeds = sorted(sides[0].seeds & sides[1].seeds)
    every = sorted(sides[0].seeds | sides[1].seeds)

    def ratio(weights: np.ndarray) -> float:
        a, b = (side.at(level, every, weights) for side in sides)
        return a / b

    point = ratio(np.ones(len(every)))
    low = high = float("nan")
    undecided = 0.0
    if len(seeds) > 1:
        random = np.random.default_rng(seed)
        draws = random.multinomial(len(every), np.full(len(every), 1 / len(every)), size=resamples)
        kinds, times = np.unique(draws, axis=0, return_counts=True)
        found = np.repeat([ratio(weights.astype(float)) for weights in kinds], times)
        finite = found[np.isfinite(found)]
        undecided = 1 - len(finite) / resamples
        if len(finite):
            low, high = (float(v) for v in np.quantile(finite, [0.025, 0.975]))
    return Efficiency(level, point, low, high, len(seeds), undecided)


class _Side:
    """Recipes by seeds, without those that can't be on any resample's frontier."""

    def __init__(self, table: pa.Table) -> None:
        self.seeds = set(pc.unique(table["seed"]).to_pylist())
        codes = pc.dictionary_encode(table["recipe"]).combine_chunks().indices.to_numpy()
        x, y = table["remaining"].to_numpy(), table["metric"].to_numpy()
        count = int(codes.max()) + 1 if len(codes) else 0
        best_x, worst_x = np.full(count, np.inf), np.full(count, -np.inf)
        best_y, worst_y = np.full(count, -np.inf), np.full(count, np.inf)
        np.minimum.at(best_x, codes, x)
        np.maximum.at(worst_x, codes, x)
        np.maximum.at(best_y, codes, y)
        np.minimum.at(worst_y, codes, y)
        # A mean lies between a recipe's extremes: what is beaten at its best by another at its
        # worst, and that other is there in every resample, never counts.
        always = np.bincount(codes, minlength=count) == len(self.seeds)
        order = np.argsort(worst_x[always], kind="stable")
        limit = np.maximum.accumulate(worst_y[always][order]) if always.any() else np.empty(0)
        place = np.searchsorted(worst_x[always][order], best_x, side="left")
        beaten = np.zeros(count, dtype=bool)
        there = place > 0
        beaten[there] = limit[place[there] - 1] > best_y[there]
        kept = ~beaten[codes]
        self.codes = np.unique(codes[kept], return_inverse=True)[1]
        self.x, self.y, self.of_seed = x[kept], y[kept], table["seed"].to_numpy()[kept]

    def at(self, level: float, seeds: Sequence[int], weights: np.ndarray) -> float:
        """Remaining weights at the level, of frontiers of weighted means over seeds."""
        if len(self.codes) == 0:
            return float("nan")
        weight = weights[np.searchsorted(seeds, self.of_seed)]
        sums = [np.bincount(self.codes, weight * v) for v in (np.ones_like(self.x), self.x, self.y)]
        there = sums[0] > 0
        x, y = sums[1][there] / sums[0][there], sums[2][there] / sums[0][there]
        order = np.lexsort((-y, x))
        x, y = x[order], y[order]
        starts = np.zeros(len(x), dtype=bool)
        starts[:1] = True
        on = _rising(y, starts) if len(x) else starts
        return _interpolated(x[on], y[on], level)
