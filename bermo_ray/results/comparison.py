"""Arms compared (docs/methods.md §4): the metric at a size, the weights at a metric, the area below
a curve.

Seeds are the unit. Each seed of an arm has a curve of its own (:mod:`bermo_ray.results.curves`);
means over seeds have Student's t interval, and two arms are compared by Welch's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError, listed, unknown
from bermo_ray.intervals import mean_half_width, welch_half_width
from bermo_ray.results.curves import Curve, trace_curves
from bermo_ray.results.frontier import dense_levels, is_dense, usable
from bermo_ray.results.schemas import AREAS, LEVELS, RATIOS, SIZES

SHARES = (0.95, 0.97, 0.99)  # of the reference: the levels at which arms are compared
Curves = dict[int, Curve]  # of one arm, by seed


def metric_at_sizes(
    table: pa.Table, sizes: Sequence[float], by: Sequence[str] = ("task", "backbone", "fusion")
) -> pa.Table:
    """What each group's seeds reach with at most so many remaining weights, mean over seeds.

    Of each seed, the trial counts that has the highest ``metric_selection`` of that size, dense
    baselines included, with its ``metric_reported``.

    Args:
        table: Trials of any number of groups.
        sizes: Shares of remaining weights.
        by: The columns that make a group.

    Returns:
        A row for each group and size, with :data:`bermo_ray.results.schemas.SIZES` (``by``'s
        columns in place of its first three).
    """
    rows: list[dict[str, Any]] = []
    for group, curves in trace_curves(table, by).items():
        values = np.stack([curve.at_sizes(np.array(sizes, float)) for curve in curves.values()])
        means, half_widths = values.mean(axis=0), mean_half_width(values)
        unreached = np.isnan(values).sum(axis=0)
        rows += [
            dict(zip(by, group, strict=True))
            | {
                "size": float(size), "metric_reported": _known(means[i]),
                "interval": _known(half_widths[i]), "seeds": len(curves),
                "unreached": int(unreached[i]),
            }
            for i, size in enumerate(sizes)
        ]  # fmt: skip
    schema = pa.schema([*(table.schema.field(key) for key in by), *list(SIZES)[3:]])
    return pa.Table.from_pylist(rows, schema=schema)


def remaining_at_levels(
    table: pa.Table, shares: Sequence[float] = SHARES, arm: str = "fusion", arms: Sequence[str] = ()
) -> pa.Table:
    """The remaining weights with which each arm reaches each level, mean over seeds.

    Levels are shares of one reference for all arms: the ``metric_reported`` of the better dense
    baseline, the better by its mean ``metric_selection``. Each seed's weights are read off its own
    frontier (:meth:`bermo_ray.results.curves.Curve.log_remaining_at`).

    Args:
        table: Trials of one task and backbone, dense baselines among them.
        shares: Of the reference.
        arm: The column that tells the arms apart.
        arms: Its values in the order wanted; by default all, as they first appear.

    Returns:
        A row for each share and arm, with :data:`bermo_ray.results.schemas.LEVELS`.

    Raises:
        UserError: no dense baseline, several tasks or backbones, or an unknown column or arm.
    """
    curves, reference = _trace_arms(table, arm, arms), _find_reference(table, arm)
    rows = [
        {"arm": name, "share": share, "level": share * reference}
        | _remaining_row(_logs_at(by_seed, share * reference))
        for share in shares
        for name, by_seed in curves.items()
    ]
    return pa.Table.from_pylist(rows, schema=LEVELS)


def _remaining_row(logs: np.ndarray) -> dict[str, Any]:
    mean = float(logs.mean()) if len(logs) else math.nan
    half_width = float(mean_half_width(logs))
    return {
        "remaining": _known(math.exp(mean)),
        "low": _known(math.exp(mean - half_width)),
        "high": _known(math.exp(mean + half_width)),
        "seeds": len(logs),
        "unreached": int(np.isnan(logs).sum()),
    }


def compare_arms(
    table: pa.Table, shares: Sequence[float] = SHARES, arm: str = "fusion", arms: Sequence[str] = ()
) -> pa.Table:
    """How many times fewer weights the later arms need than the first, at each level.

    Levels and arguments are :func:`remaining_at_levels`'s. Swapping two arms gives the reciprocal.

    Returns:
        A row for each share and later arm, with :data:`bermo_ray.results.schemas.RATIOS`; none of
        a single arm.

    Raises:
        UserError: as :func:`remaining_at_levels`; or the arms have one seed, or not the same ones.
    """
    curves, reference = _trace_arms(table, arm, arms), _find_reference(table, arm)
    pairs = _pair_up(curves)
    rows = [
        {"first": first, "second": second, "share": share}
        | vars(_compare_at(curves[first], curves[second], share * reference))
        for share in shares
        for first, second in pairs
    ]
    return pa.Table.from_pylist([_without_nan(row) for row in rows], schema=RATIOS)


def compare_areas(table: pa.Table, arm: str = "fusion", arms: Sequence[str] = ()) -> pa.Table:
    """By how much the area below the later arms' curves is larger than that below the first's.

    A seed's area is the mean, over log remaining weights, of how far its curve has come from a
    constant answer (0) to the reference of :func:`remaining_at_levels` (1). The range goes from the
    largest of all seeds' and arms' sparsest points to all weights.

    Args:
        table: Trials of one task and backbone, dense baselines among them.
        arm: The column that tells the arms apart.
        arms: Its values in the order wanted; by default all, as they first appear.

    Returns:
        A row for each later arm, with :data:`bermo_ray.results.schemas.AREAS`; none of a single
        arm. Seeds that do not get there are those whose frontier has no point.

    Raises:
        UserError: as :func:`compare_arms`.
    """
    curves, reference = _trace_arms(table, arm, arms), _find_reference(table, arm)
    pairs = _pair_up(curves)
    sparsest = max((c.sparsest for by_seed in curves.values() for c in by_seed.values()), default=1)
    areas = {
        name: np.array([curve.mean_share(sparsest, reference) for curve in by_seed.values()])
        for name, by_seed in curves.items()
    }
    rows = [
        {
            "first": first,
            "second": second,
            "sparsest": sparsest,
            "reference": reference,
            "unreached_first": _count_empty(curves[first]),
            "unreached_second": _count_empty(curves[second]),
        }
        | _area_row(areas[first], areas[second])
        for first, second in pairs
    ]
    return pa.Table.from_pylist([_without_nan(row) for row in rows], schema=AREAS)


def _area_row(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    difference = second.mean() - first.mean()
    half_width = welch_half_width(first, second)
    return {
        "area_first": float(first.mean()),
        "area_second": float(second.mean()),
        "difference": float(difference),
        "low": float(difference - half_width),
        "high": float(difference + half_width),
        "seeds": len(first),
    }


def _count_empty(curves: Curves) -> int:
    return sum(len(curve.remaining) == 0 for curve in curves.values())


@dataclass(frozen=True)
class Efficiency:
    """How much smaller the second set of trials is than the first at a level.

    Attributes:
        level: The ``metric_reported`` that is asked for.
        ratio: Remaining weights of the first over those of the second: above 1 the second is
            smaller. NaN where one of them does not reach the level in some seed.
        low: Lower end of the 95 % interval of the ratio; NaN of one seed.
        high: Its upper end.
        seeds: How many there are.
        unreached_first: In how many of them the first does not reach the level.
        unreached_second: In how many of them the second does not.
    """

    level: float
    ratio: float
    low: float
    high: float
    seeds: int
    unreached_first: int
    unreached_second: int


def efficiency(first: pa.Table, second: pa.Table, level: float) -> Efficiency:
    """Parameter efficiency of the second set of trials over the first at a level.

    Seeds are the unit: each seed's own frontier gives its log remaining weights at the level, and
    the difference of the two means of logs has a Welch t interval. Swapping the two sets gives the
    reciprocal.

    Args:
        first: Trials of one arm; dense ones count as any other.
        second: Trials of the arm that is compared with it, with the same seeds.
        level: The ``metric_reported`` at which remaining weights are compared.

    Raises:
        UserError: the two have different seeds.
    """
    a, b = (trace_curves(table).get((), {}) for table in (first, second))
    _check_same_seeds(a, b)
    return _compare_at(a, b, level)


def _compare_at(first: Curves, second: Curves, level: float) -> Efficiency:
    a, b = _logs_at(first, level), _logs_at(second, level)
    difference = a.mean() - b.mean() if len(a) else math.nan
    half_width = welch_half_width(a, b)
    ratio, low, high = np.exp([difference, difference - half_width, difference + half_width])
    unreached = [int(np.isnan(logs).sum()) for logs in (a, b)]
    return Efficiency(level, float(ratio), float(low), float(high), len(a), *unreached)


def _logs_at(curves: Curves, level: float) -> np.ndarray:
    return np.array([curve.log_remaining_at(level) for curve in curves.values()])


def _trace_arms(table: pa.Table, arm: str, arms: Sequence[str]) -> dict[str, Curves]:
    """The curves of each arm by seed."""
    _check_one_group(table)
    if arm not in table.column_names:
        raise UserError(unknown("column", arm, table.column_names))
    shared = _is_of_every_arm(table, arm)
    known = pc.unique(pc.drop_null(table[arm].filter(pc.invert(shared)))).to_pylist()
    for name in arms:
        if name not in known:
            raise UserError(unknown(arm, name, known))
    return {
        name: trace_curves(table.filter(pc.or_(pc.equal(table[arm], name), shared))).get((), {})
        for name in arms or known
    }


def _is_of_every_arm(table: pa.Table, arm: str) -> pa.Array:
    """Dense models that the arm's column does not tell apart: where pruning methods or strategies
    of layer dropping are compared, all share them."""
    unnamed = pc.or_(pc.is_null(table[arm]), pc.equal(pc.cast(table[arm], pa.string()), "dense"))
    return pc.and_(is_dense(table), pc.fill_null(unnamed, True))


def _find_reference(table: pa.Table, arm: str) -> float:
    """What the better dense baseline of all arms reports; the better on the selection half."""
    table = usable(table)
    chosen_by, reported = (
        dense_levels(table, (arm,), column) for column in ("metric_selection", "metric_reported")
    )
    if not np.isfinite(chosen_by).any():
        raise UserError("reference: no dense baseline completed, of which a level is a share")
    return float(reported[np.nanargmax(chosen_by)])


def _check_one_group(table: pa.Table) -> None:
    for column in ("task", "backbone"):
        values = pc.unique(table[column]).to_pylist()
        if len(values) > 1:
            raise UserError(f"{column}: got {listed(values)}; compare arms of one")


def _pair_up(curves: dict[str, Curves]) -> list[tuple[str, str]]:
    """The first arm with each later one, all of which must have the same seeds, two or more."""
    first, *later = curves or [""]
    for name in later:
        _check_same_seeds(curves[first], curves[name])
    if later and len(curves[first]) < 2:
        raise UserError("seeds: one seed gives no interval; give two or more")
    return [(first, name) for name in later]


def _check_same_seeds(first: Curves, second: Curves) -> None:
    if list(first) != list(second):
        one, other = (", ".join(map(str, curves)) or "none" for curves in (first, second))
        raise UserError(
            f"seeds: one has {one}, the other {other}; compare what was run with the same"
        )


def _known(value: float) -> float | None:
    """For Arrow, where null is what NaN is to numpy."""
    return float(value) if math.isfinite(value) else None


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {k: _known(v) if isinstance(v, float) else v for k, v in row.items()}
