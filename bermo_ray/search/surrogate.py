"""A Gaussian process for a handful of trials: what a search believes between them."""

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

# Log-normal priors (median, spread of the log) of length scales, signal and noise, for inputs in
# [0, 1] and outputs of unit variance. With five trials the likelihood alone says nearly nothing.
LENGTH, SIGNAL, NOISE = (0.7, 0.7), (1.0, 1.0), (0.05, 1.0)


class GaussianProcess:
    """Regression of ``values`` (n,) on ``points`` (n, d) in the unit cube.

    Matérn 5/2 with a length for each input, plus a linear trend: remaining weights and metric move
    with log λ over the whole box, and a trend carries what few trials say to where there are none.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray, iterations: int = 6) -> None:
        self.points = points
        self.mean, self.scale = float(values.mean()), max(float(values.std()), 1e-6)
        target = (values - self.mean) / self.scale
        d = points.shape[1]
        middle = np.log([*[LENGTH[0]] * d, SIGNAL[0], NOISE[0]])
        spread = np.array([*[LENGTH[1]] * d, SIGNAL[1], NOISE[1]])

        def cost(p: np.ndarray) -> float:
            root = self._root(p)
            solved = solve_triangular(root, target, lower=True, check_finite=False)
            prior = float(np.sum(((p - middle) / spread) ** 2) / 2)
            return float(solved @ solved / 2 + np.log(np.diag(root)).sum()) + prior

        bounds = [(-2.5, 2.0)] * d + [(-3.0, 3.0), (-7.0, 1.0)]
        found = minimize(
            cost, middle, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations}
        )
        self.log_parameters = found.x
        self._factor = self._root(found.x)
        self._weights = cho_solve((self._factor, True), target)

    def _kernel(self, a: np.ndarray, b: np.ndarray, p: np.ndarray) -> np.ndarray:
        d = a.shape[1]
        gap = (a[:, None, :] - b[None, :, :]) / np.exp(p[:d])
        far = np.sqrt(5 * np.sum(gap * gap, axis=-1))
        matern = np.exp(p[d]) * (1 + far + far * far / 3) * np.exp(-far)
        return np.asarray(matern + (a - 0.5) @ (b - 0.5).T)

    def _root(self, p: np.ndarray) -> np.ndarray:
        noise = np.exp(p[-1]) * np.eye(len(self.points))
        kernel = self._kernel(self.points, self.points, p) + noise
        return np.asarray(cholesky(kernel, lower=True, check_finite=False))

    def __call__(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the surface itself, without the noise of a trial."""
        p = self.log_parameters
        across = self._kernel(points, self.points, p)
        own = np.exp(p[-2]) + np.sum((points - 0.5) ** 2, axis=1)
        solved = solve_triangular(self._factor, across.T, lower=True, check_finite=False)
        variance = np.maximum(own - np.sum(solved * solved, axis=0), 1e-9)
        return self.mean + self.scale * (across @ self._weights), self.scale * np.sqrt(variance)
