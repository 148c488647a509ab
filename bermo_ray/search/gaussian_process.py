"""A Gaussian process for a handful of trials: what a search believes between them."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")

# Log-normal priors (median, spread of the log) of length scales, signal and noise, for inputs in
# [0, 1] and outputs of unit variance. With five trials the likelihood alone says nearly nothing.
_LENGTH_PRIOR, _SIGNAL_PRIOR, _NOISE_PRIOR = (0.7, 0.7), (1.0, 1.0), (0.01, 1.5)
_LOG_BOUNDS = (-2.5, 2.0), (-3.0, 3.0), (-12.0, 1.0)


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Runs a function with BLAS on one thread: of matrices this small, threads make nothing faster,
    and where trials keep all cores busy, they wait for one another."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


class GaussianProcess:
    """Regression of ``values`` (n,) on ``points`` (n, d) in the unit cube.

    Matérn 5/2 with a length for each input, plus a linear trend: remaining weights and metric move
    with log λ over all of the box, and a trend carries what few trials say to where there are none.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray, iterations: int = 20) -> None:
        self.points = points
        self.mean, self.scale = float(values.mean()), max(float(values.std()), 1e-6)
        self._values = (values - self.mean) / self.scale
        d = points.shape[1]
        middle = np.log([*[_LENGTH_PRIOR[0]] * d, _SIGNAL_PRIOR[0], _NOISE_PRIOR[0]])
        spread = np.array([*[_LENGTH_PRIOR[1]] * d, _SIGNAL_PRIOR[1], _NOISE_PRIOR[1]])

        def cost(p: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._negative_log_likelihood(p)
            off = (p - middle) / spread
            return value + float(off @ off) / 2, gradient + off / spread

        bounds = [_LOG_BOUNDS[0]] * d + [*_LOG_BOUNDS[1:]]
        options = {"maxiter": iterations}
        fit = minimize(cost, middle, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        self.log_parameters = fit.x
        self._factor = self._cholesky(self._kernel(points, points, fit.x), fit.x)
        self._weights = cho_solve((self._factor, True), self._values)

    def _negative_log_likelihood(self, p: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative log likelihood but for a constant, and its gradient: ½ tr((K⁻¹ − aaᵀ) ∂K) with
        a = K⁻¹y."""
        d = len(p) - 2
        root = self._cholesky(self._kernel(self.points, self.points, p), p)
        solved = cho_solve((root, True), self._values, check_finite=False)
        value = float(self._values @ solved / 2 + np.log(np.diag(root)).sum())
        inverse = cho_solve((root, True), np.eye(len(self.points)), check_finite=False)
        slope = (inverse - np.outer(solved, solved)) / 2
        gap = ((self.points[:, None, :] - self.points[None, :, :]) / np.exp(p[:d])) ** 2
        far = np.sqrt(5 * gap.sum(axis=-1))
        decay = np.exp(p[d] - far)
        lengths = np.einsum("nm,nmi->i", slope * decay * (1 + far) * 5 / 3, gap)
        signal = np.sum(slope * decay * (1 + far + far * far / 3))
        return value, np.array([*lengths, signal, np.trace(slope) * np.exp(p[-1])])

    @staticmethod
    def _kernel(a: np.ndarray, b: np.ndarray, p: np.ndarray) -> np.ndarray:
        d = a.shape[1]
        far = np.sqrt(5) * cdist(a / np.exp(p[:d]), b / np.exp(p[:d]))
        matern = np.exp(p[d] - far) * (1 + far + far * far / 3)
        return np.asarray(matern + (a - 0.5) @ (b - 0.5).T)

    @staticmethod
    def _cholesky(kernel: np.ndarray, p: np.ndarray) -> np.ndarray:
        noise = np.exp(p[-1]) * np.eye(len(kernel))
        return np.asarray(cholesky(kernel + noise, lower=True, check_finite=False))

    @property
    def noise(self) -> float:
        """Standard deviation of a value around the surface."""
        return self.scale * float(np.exp(self.log_parameters[-1] / 2))

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the surface itself, without the noise of a trial."""
        p = self.log_parameters
        across = self._kernel(points, self.points, p)
        prior = np.exp(p[-2]) + np.sum((points - 0.5) ** 2, axis=1)
        solved = solve_triangular(self._factor, across.T, lower=True, check_finite=False)
        variance = np.maximum(prior - np.sum(solved * solved, axis=0), 1e-9)
        return self.mean + self.scale * (across @ self._weights), self.scale * np.sqrt(variance)
