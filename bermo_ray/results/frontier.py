"""Parameter-efficiency frontiers: pure functions of the results table.

What chose a thing does not also judge it: trials are chosen by ``metric_selection`` and reported by
``metric_reported``, which is of rows that chose nothing.

Which rows count is one rule everywhere (:func:`usable`): trials that completed and have finite
numbers. What diverged, failed, was stopped or still runs is no point of a frontier, and neither is
a trial that is hardly better than a constant answer (:data:`LEAST_SHARE_OF_DENSE`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError, unknown
from bermo_ray.intervals import student_quantile
from bermo_ray.record import Status

GROUP = ("task", "backbone", "fusion", "method")
Direction = Literal["min", "max"]
# How far from a constant answer to the dense baseline a point of a frontier must have come. On 500
# rows of two classes it is about two standard errors of an accuracy by chance.
LEAST_SHARE_OF_DENSE = 0.1
_SPARSEST = 0.01  # remaining weights where the integral of a hypervolume begins
_JUDGED_BY = ("remaining", "metric_selection", "metric_reported")
_MEASURED = pa.array([status.value for status in Status if status.measured])


def usable(table: pa.Table, columns: Sequence[str] = _JUDGED_BY) -> pa.Table:
    """The rows that completed with finite numbers in these columns."""
    mask = pc.equal(table["status"], Status.COMPLETED.value)
    for name in columns:
        mask = pc.and_(mask, pc.is_finite(table[name]))
    return table.filter(pc.fill_null(mask, False))


def select_judged(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Only these columns and those that a frontier is made of: a large table is filtered and sorted
    much faster without the others."""
    read = {*keys, *_JUDGED_BY, "status", "method", "recipe", "seed", "seeds", "constant_metric"}
    return table.select([name for name in table.column_names if name in read])


def measured(table: pa.Table) -> pa.Table:
    """The rows of trials that trained to their end, for better or worse."""
    return table.filter(pc.is_in(table["status"], _MEASURED))


def frontier(table: pa.Table, by: Sequence[str] = GROUP) -> pa.Table:
    """The non-dominated trials (remaining ↓, metric_selection ↑) of each group.

    A row stays when no other of its group has at most its remaining weights and at least its
    ``metric_selection``, one of them strictly better; of equal rows the first stays. Rows that have
    not come :data:`LEAST_SHARE_OF_DENSE` of the way from their ``constant_metric`` to the dense
    baseline (:func:`dense_levels`; without one, to the best trial of the group but for method and
    seed) are no points. Rows without a ``constant_metric`` are not judged by it.

    Args:
        table: Trials of any number of groups.
        by: The columns that make a group; with ``seed`` among them, each seed has its own frontier.

    Returns:
        Rows of the table, by group, then from sparse to dense. How good they are is their
        ``metric_reported``, which need not rise along with ``metric_selection``.
    """
    table = usable(table)
    return _frontier_above_constant(table, dense_levels(table, by), by)


def _frontier_above_constant(table: pa.Table, dense: np.ndarray, by: Sequence[str]) -> pa.Table:
    """:func:`frontier` of usable rows, given the dense baseline's level for each of them."""
    table = table.filter(pa.array(_is_above_constant(table, dense, by)))
    order = [(key, "ascending") for key in by]
    order += [("remaining", "ascending"), ("metric_selection", "descending")]
    table = table.take(pc.sort_indices(table, order))
    if table.num_rows == 0:
        return table
    starts = group_starts(table, by)
    return table.filter(pa.array(_above_all_before(table["metric_selection"].to_numpy(), starts)))


def _is_above_constant(table: pa.Table, dense: np.ndarray, by: Sequence[str]) -> np.ndarray:
    """Which rows are better than a constant answer by more than noise, or have none to compare."""
    metric, constant = table["metric_selection"].to_numpy(), constants(table)
    group = _number_groups(table, _baseline_keys(by))
    best = np.full(group.max(initial=-1) + 1, -np.inf)
    np.maximum.at(best, group, metric)
    level = np.where(np.isnan(dense), best[group], dense)
    margin = LEAST_SHARE_OF_DENSE * np.maximum(level - constant, 0.0)
    above: np.ndarray = np.isnan(constant) | (metric > constant + margin)
    return above


def constants(table: pa.Table) -> np.ndarray:
    """``constant_metric`` of each row; NaN where it is not known."""
    if "constant_metric" not in table.column_names:
        return np.full(table.num_rows, np.nan)
    return pc.fill_null(table["constant_metric"], np.nan).to_numpy()


def dense_levels(
    table: pa.Table, by: Sequence[str] = GROUP, column: str = "metric_selection"
) -> np.ndarray:
    """For each row the level of the dense baseline of its group but for method and seed; NaN where
    there is none.

    The baseline is a recipe with method ``dense`` and all weights remaining. Of several such
    recipes those with most seeds count, and of these the best by its mean ``metric_selection``.

    Args:
        table: Usable trials of any number of groups.
        by: The columns that make a group.
        column: What the level is a mean of, over the baseline's seeds: ``metric_selection`` to
            choose by it, ``metric_reported`` to report it.
    """
    group = _number_groups(table, _baseline_keys(by))
    levels = np.full(group.max(initial=-1) + 1, np.nan)
    if not {"method", "recipe", "seed"} <= set(table.column_names):
        return levels[group]
    dense = table.append_column("_baseline", pa.array(group)).filter(is_dense(table))
    if "seeds" not in dense.column_names:
        dense = _first_of_each_seed(dense, ["_baseline", "recipe"])
        dense = dense.append_column("seeds", pa.array(np.ones(dense.num_rows, np.int64)))
    means = dense.group_by(["_baseline", "recipe"], use_threads=False).aggregate(
        [
            ("seeds", "sum"),
            *((name, "mean") for name in dict.fromkeys(("metric_selection", column))),
        ]
    )
    means = means.sort_by([("seeds_sum", "descending"), ("metric_selection_mean", "descending")])
    groups, best = np.unique(means["_baseline"].to_numpy(), return_index=True)
    levels[groups] = means[f"{column}_mean"].to_numpy()[best]
    return levels[group]


def is_dense(table: pa.Table) -> pa.Array:
    """Which rows are of models with nothing pruned and no layer dropped."""
    dense = pc.and_(pc.equal(table["method"], "dense"), pc.greater_equal(table["remaining"], 1))
    return pc.fill_null(dense, False)


def _baseline_keys(by: Sequence[str]) -> list[str]:
    """What the trials that share a dense baseline have in common."""
    return [key for key in by if key not in ("method", "seed")]


def _number_groups(table: pa.Table, by: Sequence[str]) -> np.ndarray:
    """The number of each row's group, from 0; the rows may be in any order."""
    group = np.zeros(table.num_rows, dtype=np.int64)
    for key in by:
        column = pc.dictionary_encode(table[key], null_encoding="encode").combine_chunks()
        group = group * len(column.dictionary) + column.indices.to_numpy()
    return np.unique(group, return_inverse=True)[1]


def group_starts(table: pa.Table, by: Sequence[str]) -> np.ndarray:
    """Which rows of a sorted table begin a group."""
    starts = np.zeros(table.num_rows, dtype=bool)
    starts[:1] = True
    for key in by:
        column = pc.dictionary_encode(table[key], null_encoding="encode").combine_chunks()
        codes = column.indices.to_numpy()
        starts[1:] |= codes[1:] != codes[:-1]
    return starts


def _above_all_before(metric: np.ndarray, starts: np.ndarray) -> np.ndarray:
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


def hypervolume(table: pa.Table, dense: float | None = None, by: Sequence[str] = GROUP) -> pa.Table:
    """How good each group's frontier is in one number, measured from a constant answer:

        ∫ (metric − constant)/(dense − constant) d log remaining / log 100,  from 1 % to 100 %

    where ``metric`` is the ``metric_reported`` of the point of the frontier that has the highest
    ``metric_selection`` with at most that many weights, and below the sparsest point what a
    constant answer reaches. 1 means as good as dense down to 1 % of the weights, 0 no better than a
    constant answer (docs/methods.md §4).

    Args:
        table: Trials of any number of groups.
        dense: The dense baseline's ``metric_reported``; by default each group's own
            (:func:`dense_levels`).
        by: The columns that make a group; with ``seed`` among them, each seed has a number.

    Returns:
        ``by``'s columns, ``hypervolume`` and ``trials`` on the frontier; one row for each group of
        which a trial trained to its end. ``hypervolume`` is null where a usable trial of the group
        lacks its ``constant_metric`` or a dense baseline that is better than that.
    """
    table = measured(select_judged(table, by))
    table = table.sort_by([(key, "ascending") for key in by]) if by else table
    starts = group_starts(table, by)
    count = int(starts.sum())
    points = usable(table.append_column("_group", pa.array(np.cumsum(starts) - 1)))
    levels = dense_levels(points, by, "metric_reported")
    shares = _shares_of_dense(points, levels if dense is None else np.full_like(levels, dense))
    points = points.append_column("_share", pa.array(shares))
    front = _frontier_above_constant(points, dense_levels(points, by), by)
    on_front = front["_group"].to_numpy()
    area = front["_share"].to_numpy() * _log_widths(front["remaining"].to_numpy(), on_front)
    sums = np.bincount(on_front, area, minlength=count)
    is_unknown = np.bincount(points["_group"].to_numpy(), np.isnan(shares), minlength=count) > 0
    groups = table.select(list(by)).take(np.flatnonzero(starts))
    groups = groups.append_column("hypervolume", pa.array(sums, pa.float64(), mask=is_unknown))
    counts = np.bincount(on_front, minlength=count)
    return groups.append_column("trials", pa.array(counts, pa.int64()))


def _shares_of_dense(table: pa.Table, dense: np.ndarray) -> np.ndarray:
    """How far from a constant answer (0) to the dense baseline (1) each row is; NaN where one of
    them is not known, or the baseline is no better than the constant answer."""
    constant = constants(table)
    scale = np.where(dense > constant, dense - constant, np.nan)
    shares: np.ndarray = (table["metric_reported"].to_numpy() - constant) / scale
    return shares


def _log_widths(remaining: np.ndarray, group: np.ndarray) -> np.ndarray:
    """How far each point of a frontier, sparse to dense, holds until the next of its group or all
    weights: on a log scale, where from 1 % to 100 % is 1."""
    x = np.log(np.clip(remaining, _SPARSEST, 1.0)) / -np.log(_SPARSEST)
    is_last = np.append(group[1:] != group[:-1], True)[: len(x)]
    following = np.where(is_last, 0.0, np.append(x[1:], 0.0)[: len(x)])
    widths: np.ndarray = following - x
    return widths


def average_seeds(table: pa.Table) -> pa.Table:
    """Trials that differ in nothing but the seed, as one row: the first's, with the means of
    ``metric``, ``metric_selection``, ``metric_reported``, ``constant_metric`` and ``remaining``,
    how many ``seeds``, the sample deviation ``reported_sd`` of ``metric_reported`` and half the
    width of its mean's 95 % interval ``reported_interval`` (Student's t; both null of one seed).
    The same recipe and seed run twice, as by two studies, counts once: its first row. Rows that are
    not :func:`usable` are left out."""
    table = _first_of_each_seed(usable(table), ["recipe"])
    table = table.append_column("_index", pa.array(np.arange(table.num_rows)))
    averaged = ("metric", "metric_selection", "metric_reported", "constant_metric", "remaining")
    merged = table.group_by("recipe", use_threads=False).aggregate([
        ("_index", "min"), *((name, "mean") for name in averaged), ("metric_reported", "count"),
        ("metric_reported", "stddev", pc.VarianceOptions(ddof=1, min_count=2)),
    ])  # fmt: skip
    rows = table.take(merged["_index_min"]).drop_columns(["_index"])
    for name in averaged:
        column = rows.schema.get_field_index(name)
        rows = rows.set_column(column, rows.schema.field(name), merged[f"{name}_mean"])
    deviation, seeds = merged["metric_reported_stddev"], merged["metric_reported_count"].to_numpy()
    half_widths = student_quantile(np.maximum(seeds - 1, 1)) / np.sqrt(seeds)
    rows = rows.append_column("seeds", merged["metric_reported_count"])
    rows = rows.append_column("reported_sd", deviation)
    return rows.append_column("reported_interval", pc.multiply(deviation, half_widths))


def _first_of_each_seed(table: pa.Table, recipe: Sequence[str]) -> pa.Table:
    """The first row of each seed of a recipe, which these columns name; rows keep their order."""
    numbered = table.append_column("_index", pa.array(np.arange(table.num_rows)))
    firsts = numbered.group_by([*recipe, "seed"], use_threads=False).aggregate([("_index", "min")])
    if firsts.num_rows == table.num_rows:  # the usual case, without a copy
        return table
    return table.take(np.sort(firsts["_index_min"].to_numpy()))
