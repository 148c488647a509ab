"""Each seed's curve: what is reported of the model that it would choose at a size.

Every seed of a frontier study is a search of its own, so that its frontier is its own too; means
and intervals over seeds are of what these curves say.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray.results.frontier import (
    constants,
    frontier,
    group_starts,
    measured,
    select_judged,
)

# Numbers that are equal on paper may differ in their last bit; metrics and sizes are of order 1.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Curve:
    """A frontier from sparse to dense, chosen by ``metric_selection``; it may have no point.

    Attributes:
        remaining: Of each point, rising. [n]
        reported: ``metric_reported`` of each. [n]
        constant: What a constant answer reaches; NaN where it is not known. [n]
    """

    remaining: np.ndarray
    reported: np.ndarray
    constant: np.ndarray

    @classmethod
    def of_frontier(cls, front: pa.Table) -> "Curve":
        """The curve of one group's :func:`frontier`."""
        remaining, reported = front["remaining"], front["metric_reported"]
        return cls(remaining.to_numpy(), reported.to_numpy(), constants(front))

    @property
    def sparsest(self) -> float:
        """Remaining weights of the sparsest point; infinite where there is none."""
        return float(self.remaining[0]) if len(self.remaining) else math.inf

    def at_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """The reported metric of the point with the highest ``metric_selection`` that has at most
        so many remaining weights; NaN below the sparsest point."""
        return self._step(self.reported, sizes)

    def _step(self, values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Of each size the value of the last point that is no larger. ``metric_selection`` rises
        along a frontier, so that it is also the best one there."""
        index = np.searchsorted(self.remaining, np.asarray(sizes) + _ROUNDING, side="right") - 1
        stepped: np.ndarray = np.append(values, np.nan)[index]  # -1, before the first, is the NaN
        return stepped

    def log_remaining_at(self, level: float) -> float:
        """Log of the remaining weights that reach a reported metric, on straight lines between the
        points (log remaining, best reported metric so far).

        A level that the sparsest point meets takes that point; one that no point reaches is NaN.
        """
        best = np.maximum.accumulate(self.reported)
        reached = np.flatnonzero(best >= level - _ROUNDING)
        if len(reached) == 0:
            return math.nan
        right = reached[0]
        logs = np.log(self.remaining)
        if right == 0:
            return float(logs[0])
        share = min((level - best[right - 1]) / (best[right] - best[right - 1]), 1.0)
        return float(logs[right - 1] + share * (logs[right] - logs[right - 1]))

    def mean_share(self, low: float, reference: float) -> float:
        """The mean over log remaining, from ``low`` to 1, of

            (reported − constant) / (reference − constant)

        along the steps; NaN where the curve does not begin by ``low``, ``low`` is not below 1, or
        the reference is not known to be better than a constant answer.
        """
        if low >= 1:
            return math.nan
        scale = np.where(reference > self.constant, reference - self.constant, np.nan)
        within = self.remaining[(self.remaining > low) & (self.remaining < 1)]
        widths = np.diff(np.log([low, *within, 1.0]))
        shares = self._step((self.reported - self.constant) / scale, np.array([low, *within]))
        return float(np.sum(shares * widths) / np.sum(widths))


def remaining_at(front: pa.Table, level: float) -> float:
    """Remaining weights at a reported metric along one group's :func:`frontier`
    (:meth:`Curve.log_remaining_at`); NaN where no point reaches it."""
    return math.exp(Curve.of_frontier(front).log_remaining_at(level))


def trace_curves(
    table: pa.Table, by: Sequence[str] = ()
) -> dict[tuple[Any, ...], dict[int, Curve]]:
    """Each group's curves by seed: groups in the order in which they first appear, seeds rising.

    A group's dense baselines are points too. Seeds are those of which a trial trained to its end;
    one of which no trial is a point of a frontier has a curve without points.

    Args:
        table: Trials of any number of groups.
        by: The columns that make a group; without any, all trials are one.
    """
    keys = [*by, "seed"]
    table = select_judged(table, keys)
    ended = measured(table).group_by(keys, use_threads=False).aggregate([])
    front = frontier(table, keys)
    curves = _split(front, keys)
    empty = Curve.of_frontier(front.slice(0, 0))
    traced: dict[tuple[Any, ...], dict[int, Curve]] = {}
    for key in _key_tuples(ended, keys):
        traced.setdefault(key[:-1], {})[key[-1]] = curves.get(key, empty)
    return {group: dict(sorted(by_seed.items())) for group, by_seed in traced.items()}


def _split(front: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], Curve]:
    """The curve of each group of a frontier by these columns."""
    if front.num_rows == 0:
        return {}
    starts, every = np.flatnonzero(group_starts(front, keys)), Curve.of_frontier(front)
    columns = (every.remaining, every.reported, every.constant)
    parts = zip(*(np.split(column, starts[1:]) for column in columns), strict=True)
    groups = _key_tuples(front.select(list(keys)).take(starts), keys)
    return {key: Curve(*part) for key, part in zip(groups, parts, strict=True)}


def _key_tuples(table: pa.Table, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[key].to_pylist() for key in keys), strict=True))
