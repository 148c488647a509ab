"""Parameter-efficiency frontiers: pure functions of the results table.

Which rows count is one rule everywhere (:func:`usable`): trials that completed and have finite
numbers. What diverged, failed, was stopped or still runs is no point of a frontier.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError, unknown
from bermo_ray.record import Status

GROUP = ("task", "backbone", "fusion", "method")
Direction = Literal["min", "max"]
# Means that are equal on paper may differ in their last bit; metrics are of the order of 1.
_ROUNDING = 1e-12


def usable(table: pa.Table, columns: Sequence[str] = ("remaining", "metric")) -> pa.Table:
    """The rows that completed with finite numbers in these columns."""
    mask = pc.equal(table["status"], Status.COMPLETED.value)
    for name in columns:
        mask = pc.and_(mask, pc.is_finite(table[name]))
    return table.filter(pc.fill_null(mask, False))


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
    starts = _group_starts(table, by)
    return table.filter(pa.array(above_all_before(table["metric"].to_numpy(), starts)))


def _group_starts(table: pa.Table, by: Sequence[str]) -> np.ndarray:
    """Which rows of a sorted table begin a group."""
    starts = np.zeros(table.num_rows, dtype=bool)
    starts[:1] = True
    for key in by:
        column = pc.dictionary_encode(table[key], null_encoding="encode").combine_chunks()
        codes = column.indices.to_numpy()
        starts[1:] |= codes[1:] != codes[:-1]
    return starts


def above_all_before(metric: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which entries are above all before them in their group; ``starts`` marks where groups begin.

    Lifting each group above the one before lets one running maximum serve them all.
    """
    group = np.cumsum(starts) - 1
    lifted = metric + group * 2 * (np.ptp(metric) + 1.0)
    above = starts.copy()
    above[1:] |= lifted[1:] > np.maximum.accumulate(lifted)[:-1]
    return above


def non_dominated(table: pa.Table, objectives: Mapping[str, Direction]) -> pa.Table:
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
    costs = np.stack(
        [signs[direction] * table[name].to_numpy() for name, direction in objectives.items()],
        axis=1,
    )
    _, unique = np.unique(costs, axis=0, return_index=True)
    # By the sum of ranks a row comes after every row that dominates it: unique rows are sorted, so
    # that of rows equal in one objective the one that dominates has the lower rank in it too.
    order = np.argsort(costs[unique], axis=0, kind="stable")
    ranks = np.argsort(order, axis=0).sum(axis=1)
    candidates = unique[np.argsort(ranks, kind="stable")]
    kept: list[int] = []
    while len(candidates):
        best, candidates = candidates[0], candidates[1:]
        kept.append(int(best))
        candidates = candidates[np.any(costs[candidates] < costs[best], axis=1)]
    return table.take(pa.array(sorted(kept), pa.int64()))


def hypervolume(
    table: pa.Table, remaining: float = 1.0, metric: float = 0.0, by: Sequence[str] = GROUP
) -> pa.Table:
    """How good each group's frontier is in one number: the area of (remaining, metric) that it
    dominates, up to the reference point. Trials beyond the reference add nothing.

    Args:
        table: Trials of any number of groups.
        remaining: Of the reference point.
        metric: Of the reference point.
        by: The columns that make a group.

    Returns:
        ``by``'s columns, ``hypervolume`` and ``trials`` on the frontier; one row per group.
    """
    inside = usable(table)
    inside = inside.filter(
        pc.and_(
            pc.less(inside["remaining"], remaining), pc.greater(inside["metric"], metric)
        )
    )  # fmt: skip
    front = frontier(inside, by)
    starts = _group_starts(front, by)
    x, y = front["remaining"].to_numpy(), front["metric"].to_numpy()
    # Sparse to dense: each point holds its metric up to the next one's x, or the reference's.
    following = np.where(np.append(starts[1:], True), remaining, np.append(x[1:], remaining))
    area = (following[: len(x)] - x) * (y - metric)
    indices = np.flatnonzero(starts)
    sums = np.add.reduceat(area, indices) if len(indices) else np.empty(0)
    counts = np.diff(np.append(indices, len(x)))
    groups = front.select(list(by)).take(indices)
    groups = groups.append_column("hypervolume", pa.array(sums, pa.float64()))
    return groups.append_column("trials", pa.array(counts, pa.int64()))


def remaining_at(front: pa.Table, metric: float) -> float:
    """Remaining weights at a metric level, on straight lines between the points of one frontier.

    A level that the sparsest point meets takes that point's; one above the best point's is NaN.
    """
    return interpolate(front["remaining"].to_numpy(), front["metric"].to_numpy(), metric)


def interpolate(remaining: np.ndarray, metric: np.ndarray, level: float) -> float:
    """:func:`remaining_at` of a frontier's columns, sparse to dense."""
    if len(metric) == 0 or level > metric[-1] + _ROUNDING:
        return float("nan")
    return float(np.interp(level, metric, remaining))


def average_seeds(table: pa.Table) -> pa.Table:
    """Trials that differ in nothing but the seed, as one row: the first's, with the means of
    ``metric`` and ``remaining``, how many ``seeds``, the sample deviation ``metric_sd`` and half
    the width of the mean's 95 % interval ``metric_interval`` (Student's t; both null of one seed).
    Rows that are not :func:`usable` are left out."""
    from scipy.stats import t

    table = usable(table)
    table = table.append_column("_index", pa.array(np.arange(table.num_rows)))
    merged = table.group_by("recipe", use_threads=False).aggregate([
        ("_index", "min"), ("metric", "mean"), ("remaining", "mean"), ("metric", "count"),
        ("metric", "stddev", pc.VarianceOptions(ddof=1, min_count=2)),
    ])  # fmt: skip
    rows = table.take(merged["_index_min"]).drop_columns(["_index"])
    for name in ("metric", "remaining"):
        column = rows.schema.get_field_index(name)
        rows = rows.set_column(column, rows.schema.field(name), merged[f"{name}_mean"])
    rows = rows.append_column("seeds", merged["metric_count"])
    rows = rows.append_column("metric_sd", merged["metric_stddev"])
    seeds = merged["metric_count"].to_numpy()
    half_width = t.ppf(0.975, np.maximum(seeds - 1, 1)) / np.sqrt(seeds)
    return rows.append_column("metric_interval", pc.multiply(merged["metric_stddev"], half_width))


def keep_most_seeds(merged: pa.Table, by: Sequence[str] = GROUP) -> pa.Table:
    """Of :func:`average_seeds`, the recipes that have as many seeds as any of their group: what a
    single lucky seed reached is no match for a mean of several."""
    if merged.num_rows == 0:
        return merged
    merged = merged.take(pc.sort_indices(merged, [(key, "ascending") for key in by]))
    starts, seeds = _group_starts(merged, by), merged["seeds"].to_numpy()
    most = np.maximum.reduceat(seeds, np.flatnonzero(starts))
    return merged.filter(pa.array(seeds == most[np.cumsum(starts) - 1]))
