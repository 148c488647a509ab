"""An Optuna sampler for `fewest remaining weights with metric ≥ target` (methods §4)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr, logit, ndtr
from scipy.stats import qmc

from bermo_ray.search.surrogate import GaussianProcess

METRIC = "metric"  # name of the constraint: target − metric, met when at most 0
UNKNOWN = "remaining unknown"  # attribute of a trial that ended before its remaining weights were
FIRST = 3  # trials that halve the bracket of λ before there is anything to model
MODELLED = 400  # trials, those nearest to the best: with more, choosing one takes many seconds
DENSEST = 0.98  # remaining weights from here on say alike: λ was too small to prune
LEAST = 0.005  # a relative gain that is worth a trial; without it one point is tried for ever
GLOBAL, LOCAL = 512, 128  # candidates: over the box, and around the best at each scale
SCALES = (0.15, 0.05, 0.015, 0.005)
REFINED = (0.1, 0.04, 0.016)  # then around the most promising of them, ever closer


class TargetSampler(optuna.samplers.BaseSampler):
    """Uses what is known of the problem, which general samplers do not.

    Remaining weights fall with λ and the metric falls with them, so the first trials halve the
    bracket of log λ: up where the target was met, down where it was not. Then two Gaussian
    processes, of the log odds of remaining weights (log r where few remain, and a straight line
    through the middle, as λ does it) and of the metric, choose the point of the greatest expected
    improvement times the probability to meet the target; while nothing has met it, the point most
    likely to. Trials that still run count as what is believed of them.

    The study minimises remaining weights, with the constraint :data:`METRIC`; failed trials say
    nothing. ``bracketed`` names λ's parameter of ``space``.
    """

    def __init__(
        self, seed: int, space: dict[str, FloatDistribution], bracketed: str | None
    ) -> None:
        self.space, self.bracketed = space, bracketed
        self._random = np.random.default_rng(seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters are decided together."""
        return dict(self.space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next trial's parameters."""
        names, spans = list(self.space), list(self.space.values())
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        known = [t for t in others if t.state == TrialState.COMPLETE]
        running = [
            t for t in others if t.state == TrialState.RUNNING and len(t.params) == len(names)
        ]
        points, busy = _units(known, names, spans), _units(running, names, spans)
        if len(known) < FIRST:
            point = self._halving(known, points, busy, names)
        else:
            point = self._best(known, points, busy)
        return dict(zip(names, map(float, _values(point[None, :], spans)[0]), strict=True))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Never asked for: a value that was not taken as it was given is a mistake here."""
        raise ValueError(f"{param_name} is not of the space, or its value lies outside")

    def _halving(
        self, known: list[FrozenTrial], points: np.ndarray, running: np.ndarray, names: list[str]
    ) -> np.ndarray:
        point = 0.5 + 0.5 * (self._random.random(len(names)) - 0.5)
        if self.bracketed in names:
            place = names.index(self.bracketed)
            low, high = 0.0, 1.0
            for trial, x in zip(known, points[:, place], strict=True):
                if shortfall(trial) <= 0:
                    low = max(low, float(x))
                else:
                    high = min(high, float(x))
            # Trials at once part the bracket evenly.
            inside = sorted([low, high, *(float(x) for x in running[:, place] if low < x < high)])
            gaps = np.diff(inside)
            widest = int(np.argmax(gaps)) if len(gaps) else 0
            point[place] = (inside[widest] + inside[min(widest + 1, len(inside) - 1)]) / 2
        return point

    def _best(
        self, known: list[FrozenTrial], points: np.ndarray, running: np.ndarray
    ) -> np.ndarray:
        short = np.array([shortfall(t) for t in known])
        sized = np.array([UNKNOWN not in t.user_attrs for t in known])
        sizes = logit(np.clip([float(t.values[0]) for t in known], 1e-6, DENSEST))
        met = (short <= 0) & sized
        best = int(np.flatnonzero(met)[np.argmin(sizes[met])]) if met.any() else None
        centre = points[int(np.argmin(short)) if best is None else best]
        used = np.argsort(np.linalg.norm(points - centre, axis=1), kind="stable")[:MODELLED]
        miss = GaussianProcess(points[used], short[used])
        if len(running):  # believed to end where they are expected to
            believed = np.append(short[used], miss(running)[0])
            miss = GaussianProcess(np.concatenate([points[used], running]), believed)
        fit = used[sized[used]]
        size = None if best is None else GaussianProcess(points[fit], sizes[fit])

        def worth(candidates: np.ndarray) -> np.ndarray:
            """Log of it: far from the target both factors are all but 0."""
            mean, deviation = miss(candidates)
            found = log_ndtr(-mean / deviation)
            if best is not None and size is not None:
                mean, deviation = size(candidates)
                z = (sizes[best] - LEAST - mean) / deviation
                density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
                found = found + np.log(np.maximum(deviation * (z * ndtr(z) + density), 1e-300))
            if len(running):  # not where one runs already
                near = cdist(candidates, running).min(axis=1)
                found = found + np.log(np.clip(near / SCALES[1], 1e-300, 1.0))
            return np.asarray(found)

        return self._highest(worth, points.shape[1], None if best is None else centre)

    def _highest(
        self, worth: Callable[[np.ndarray], np.ndarray], d: int, centre: np.ndarray | None
    ) -> np.ndarray:
        """The point of the box that is worth most: candidates over the box and around ``centre``,
        then around the best five of them."""
        spread = [qmc.Sobol(d, rng=self._random).random(GLOBAL)]
        if centre is not None:
            spread += [self._around(centre[None], scale, LOCAL) for scale in SCALES]
        candidates = np.concatenate(spread)
        for scale in REFINED:
            top = candidates[np.argsort(-worth(candidates))[:5]]
            candidates = np.concatenate([top, self._around(top, scale, 40)])
        return np.asarray(candidates[int(np.argmax(worth(candidates)))])

    def _around(self, centres: np.ndarray, scale: float, each: int) -> np.ndarray:
        shape = (len(centres), each, centres.shape[1])
        near = centres[:, None] + scale * self._random.standard_normal(shape)
        return np.clip(near, 0, 1).reshape(-1, shape[-1])


def shortfall(trial: FrozenTrial) -> float:
    """By how much a trial missed the target; 0 or less: it met it."""
    return float(trial.constraints[METRIC])


def _units(
    trials: list[FrozenTrial], names: list[str], spans: list[FloatDistribution]
) -> np.ndarray:
    """Parameters of trials as places in the unit cube."""
    rows = np.array([[t.params[n] for n in names] for t in trials], dtype=float)
    rows = rows.reshape(len(trials), len(names))
    for i, span in enumerate(spans):
        low, high = math.log(span.low), math.log(span.high)
        rows[:, i] = (np.log(rows[:, i]) - low) / (high - low) if high > low else 0.5
    return rows


def _values(points: np.ndarray, spans: list[FloatDistribution]) -> np.ndarray:
    """Places in the unit cube as parameters."""
    low, high = [span.low for span in spans], [span.high for span in spans]
    found = np.exp(np.log(low) + points * (np.log(high) - np.log(low)))
    return np.clip(found, low, high)  # e^(ln x) may lie a bit outside, and is no value of the range
