"""What trials of any λ and rates would come to: a surface through recorded trials, and the problems
on it that searches are measured by.

The trials are real (``surface.parquet``, by ``tools/record_surface.py``: L0 on `tense` with the
shipped encoder, both fusions, a Sobol sequence over λ and both rates). Between them log remaining
weights and accuracy are local quadratic regressions (LOESS, the 40 nearest, tricube weights), which
of linear and quadratic ones and two kinds of forests foretell held-out trials best. A regression
smooths: the noise of a trial's seed is not on the surface and is added where it is wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from optuna.distributions import FloatDistribution
from scipy.stats import qmc

NAMES = ("multiplier", "learning_rate", "score_learning_rate")
LOW, HIGH = np.log([1.0, 1.5e-4, 1e-2]), np.log([60.0, 3e-3, 2e-1])  # of tools/record_surface.py
SPACE = {
    name: FloatDistribution(float(np.exp(low)), float(np.exp(high)), log=True)
    for name, low, high in zip(NAMES, LOW, HIGH, strict=True)
}
# Standard deviations between seeds of one trial: of the metric, and of log remaining weights. Five
# seeds of eight recipes had 0.007 to 0.017 near the dense baseline and 0.06 at 75 % of the weights;
# both grow as more is pruned (`Noise` of calibration.py).
METRIC_NOISE, LOG_REMAINING_NOISE = 0.010, 0.05

_NEAREST = 40
_CHUNK = 1024  # points at once
_ONE, _OTHER = np.triu_indices(3)
_RIDGE = 1e-3 * np.diag([0.0, *[1.0] * 9])


def to_unit_cube(parameters: dict[str, Any]) -> np.ndarray:
    """λ and rates by name -> a point of the unit cube, (3,)."""
    return np.asarray((np.log([parameters[n] for n in NAMES]) - LOW) / (HIGH - LOW))


class Surface:
    """Remaining weights and accuracy anywhere in the box, from recorded trials."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.points = np.array([to_unit_cube(row) for row in rows])
        self.values = np.array([[np.log(row["remaining"]), row["metric"]] for row in rows])

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """(n, 3) points of the unit cube -> (n, 2): remaining weights, metric."""
        chunks = [self._fit(points[at : at + _CHUNK]) for at in range(0, len(points), _CHUNK)]
        values = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        values[:, 0] = np.exp(np.minimum(values[:, 0], 0.0))
        return values

    def _fit(self, points: np.ndarray) -> np.ndarray:
        """Log remaining weights and metric at up to a chunk of points."""
        gaps = self.points - points[:, None]
        squared = np.einsum("nki,nki->nk", gaps, gaps)
        near = np.argpartition(squared, _NEAREST - 1, axis=1)[:, :_NEAREST]
        row = np.arange(len(points))[:, None]
        far = np.sqrt(squared[row, near])
        gaps = gaps[row, near]
        weight = (1 - (far / (far.max(axis=1, keepdims=True) * 1.0001)) ** 3) ** 3
        terms = np.empty((*near.shape, 10))
        terms[..., 0] = 1.0
        terms[..., 1:4] = gaps
        np.multiply(gaps[..., _ONE], gaps[..., _OTHER], out=terms[..., 4:])
        weighted = (terms * weight[..., None]).transpose(0, 2, 1)
        fit = np.linalg.solve(weighted @ terms + _RIDGE, weighted @ self.values[near])
        return np.asarray(fit[:, 0])

    def fewest(self, target: float) -> float:
        """The fewest remaining weights that meet the target: a fine cover, then finer ones around
        the best of it."""
        random = np.random.default_rng(0)
        points = qmc.Sobol(3, rng=random).random(2**14)
        for scale in (0.05, 0.02, 0.007, 0.002, 0.0007, 0.0):
            values = self(points)
            sizes = np.where(values[:, 1] >= target, values[:, 0], np.inf)
            best = points[np.argsort(sizes)[:20]]
            near = best[:, None] + scale * random.standard_normal((20, 200, 3))
            points = np.concatenate([best, np.clip(near, 0, 1).reshape(-1, 3)])
        return float(sizes.min())


@dataclass(frozen=True)
class Problem:
    """The fewest weights with at least a share of a fusion's dense metric."""

    fusion: str
    share: float
    surface: Surface
    target: float
    """The metric to meet: the share of the dense baseline's."""
    fewest: float
    """The fewest remaining weights anywhere on the surface that meet it."""


def load_surfaces() -> dict[str, tuple[Surface, float]]:
    """Each fusion's surface, and the metric of its dense baseline."""
    recorded = pq.read_table(Path(__file__).with_name("surface.parquet")).to_pylist()
    surfaces = {}
    for fusion in ("last", "bermo"):
        rows = [row for row in recorded if row["fusion"] == fusion]
        surface = Surface([row for row in rows if row["method"] == "l0"])
        surfaces[fusion] = surface, next(r["metric"] for r in rows if r["method"] == "dense")
    return surfaces


def load_problems(shares: Sequence[float]) -> list[Problem]:
    """Both fusions, each with a target at every share of its dense baseline."""
    return [
        Problem(fusion, share, surface, share * dense, surface.fewest(share * dense))
        for fusion, (surface, dense) in load_surfaces().items()
        for share in shares
    ]
