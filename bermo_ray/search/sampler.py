"""An Optuna sampler for `fewest remaining weights with metric ≥ target` (docs/methods.md §4)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr, logit, ndtr
from scipy.stats import qmc

from bermo_ray.search.gaussian_process import GaussianProcess, on_one_thread

CONSTRAINT = "metric"  # its name in Optuna: target − metric, met when at most 0
SIZE_UNKNOWN = "size unknown"  # attribute of a trial that ended before its size was known
_DENSEST = 0.98  # remaining weights from here on count alike: λ was too small to prune
_GLOBAL_CANDIDATES = 512  # over the box
_LOCAL_CANDIDATES = 128  # around the best, at each scale
_LOCAL_SCALES = (0.15, 0.05, 0.015, 0.005)  # standard deviations in the unit cube
_REFINING_SCALES = (0.1, 0.04, 0.016)  # then around the most promising candidates, ever closer


class TargetSampler(optuna.samplers.BaseSampler):
    """Uses what is known of the problem, which general samplers do not.

    Remaining weights fall with λ and the metric falls with them, so the first trials halve the
    bracket of log λ: up where the target was met, down where it was not. Then two Gaussian
    processes, of the log odds of remaining weights (:func:`size_scale`) and of the metric, choose
    the point of the greatest expected improvement times the probability to meet the target; while
    nothing has met it, the point most likely to. Trials that still run count as what is believed of
    them.

    The study minimises remaining weights, with the constraint :data:`CONSTRAINT`; failed trials say
    nothing.

    Args:
        seed: Of the candidates.
        space: All parameters, on log scales.
        sparsity_key: λ's parameter of ``space``.
        n_bracketing_trials: Trials that halve the bracket of λ before there is anything to model.
        max_modelled_trials: Those nearest to the best; with more, choosing one takes many seconds.
        min_gain: A relative gain that is worth a trial; without it one point is tried for ever.
    """

    def __init__(
        self,
        seed: int,
        space: dict[str, FloatDistribution],
        sparsity_key: str | None,
        n_bracketing_trials: int = 3,
        max_modelled_trials: int = 400,
        min_gain: float = 0.005,
    ) -> None:
        self.space, self.sparsity_key = space, sparsity_key
        self.n_bracketing_trials = n_bracketing_trials
        self.max_modelled_trials, self.min_gain = max_modelled_trials, min_gain
        self._random = np.random.default_rng(seed)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters are decided together."""
        return dict(self.space)

    @on_one_thread
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
        points, busy = to_unit_cube(known, names, spans), to_unit_cube(running, names, spans)
        if len(known) < self.n_bracketing_trials:
            point = self._bracket_sparsity(known, points, busy, names)
        else:
            point = self._maximize_improvement(known, points, busy)
        return dict(zip(names, map(float, _from_unit_cube(point[None, :], spans)[0]), strict=True))

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Never asked for: a value that was not taken as it was given is a mistake here."""
        raise ValueError(f"{param_name} is not of the space, or its value lies outside")

    def _bracket_sparsity(
        self, known: list[FrozenTrial], points: np.ndarray, running: np.ndarray, names: list[str]
    ) -> np.ndarray:
        point = 0.5 + 0.5 * (self._random.random(len(names)) - 0.5)
        if self.sparsity_key in names:
            column = names.index(self.sparsity_key)
            low, high = 0.0, 1.0
            for trial, x in zip(known, points[:, column], strict=True):
                if shortfall(trial) <= 0:
                    low = max(low, float(x))
                else:
                    high = min(high, float(x))
            # Trials at once part the bracket evenly.
            inside = sorted([low, high, *(float(x) for x in running[:, column] if low < x < high)])
            gaps = np.diff(inside)
            widest = int(np.argmax(gaps)) if len(gaps) else 0
            point[column] = (inside[widest] + inside[min(widest + 1, len(inside) - 1)]) / 2
        return point

    def _maximize_improvement(
        self, known: list[FrozenTrial], points: np.ndarray, running: np.ndarray
    ) -> np.ndarray:
        short = np.array([shortfall(t) for t in known])
        sized = np.array([SIZE_UNKNOWN not in t.user_attrs for t in known])
        sizes = size_scale([float(t.values[0]) for t in known])
        met = (short <= 0) & sized
        best = int(np.flatnonzero(met)[np.argmin(sizes[met])]) if met.any() else None
        centre = points[int(np.argmin(short)) if best is None else best]
        used = np.argsort(np.linalg.norm(points - centre, axis=1), kind="stable")[
            : self.max_modelled_trials
        ]
        miss = GaussianProcess(points[used], short[used])
        if len(running):  # believed to end where they are expected to
            believed = np.append(short[used], miss.predict(running)[0])
            miss = GaussianProcess(np.concatenate([points[used], running]), believed)
        fit = used[sized[used]]
        size = None if best is None else GaussianProcess(points[fit], sizes[fit])

        def worth(candidates: np.ndarray) -> np.ndarray:
            """Log of it: far from the target both factors are all but 0."""
            mean, deviation = miss.predict(candidates)
            log_worth = log_ndtr(-mean / deviation)
            if best is not None and size is not None:
                mean, deviation = size.predict(candidates)
                z = (sizes[best] - self.min_gain - mean) / deviation
                pdf = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
                log_worth = log_worth + np.log(np.maximum(deviation * (z * ndtr(z) + pdf), 1e-300))
            if len(running):  # not where one runs already
                near = cdist(candidates, running).min(axis=1)
                log_worth = log_worth + np.log(np.clip(near / _LOCAL_SCALES[1], 1e-300, 1.0))
            return np.asarray(log_worth)

        return self._maximize(worth, points.shape[1], None if best is None else centre)

    def _maximize(
        self, worth: Callable[[np.ndarray], np.ndarray], d: int, centre: np.ndarray | None
    ) -> np.ndarray:
        """The point of the box that is worth most: candidates over the box and around ``centre``,
        then around the best five of them."""
        spread = [qmc.Sobol(d, rng=self._random).random(_GLOBAL_CANDIDATES)]
        if centre is not None:
            spread += [
                self._sample_around(centre[None], scale, _LOCAL_CANDIDATES)
                for scale in _LOCAL_SCALES
            ]
        candidates = np.concatenate(spread)
        for scale in _REFINING_SCALES:
            top = candidates[np.argsort(-worth(candidates))[:5]]
            candidates = np.concatenate([top, self._sample_around(top, scale, 40)])
        return np.asarray(candidates[int(np.argmax(worth(candidates)))])

    def _sample_around(self, centres: np.ndarray, scale: float, each: int) -> np.ndarray:
        shape = (len(centres), each, centres.shape[1])
        near = centres[:, None] + scale * self._random.standard_normal(shape)
        return np.clip(near, 0, 1).reshape(-1, shape[-1])


def size_scale(remaining: Sequence[float]) -> np.ndarray:
    """Log odds of remaining weights: log r where few remain, and a straight line through the
    middle, as λ does it. The densest count alike."""
    return np.asarray(logit(np.clip(remaining, 1e-6, _DENSEST)))


def shortfall(trial: FrozenTrial) -> float:
    """By how much a trial missed the target; 0 or less: it met it."""
    return float(trial.constraints[CONSTRAINT])


def to_unit_cube(
    trials: list[FrozenTrial], names: list[str], spans: list[FloatDistribution]
) -> np.ndarray:
    """Parameters of trials as points of the unit cube, [n, d]."""
    rows = np.array([[t.params[n] for n in names] for t in trials], dtype=float)
    rows = rows.reshape(len(trials), len(names))
    for i, span in enumerate(spans):
        low, high = math.log(span.low), math.log(span.high)
        rows[:, i] = (np.log(rows[:, i]) - low) / (high - low) if high > low else 0.5
    return rows


def _from_unit_cube(points: np.ndarray, spans: list[FloatDistribution]) -> np.ndarray:
    """Points of the unit cube as parameters, [n, d]."""
    low, high = [span.low for span in spans], [span.high for span in spans]
    values = np.exp(np.log(low) + points * (np.log(high) - np.log(low)))
    return np.clip(
        values, low, high
    )  # e^(ln x) may lie a bit outside, and is no value of the range
