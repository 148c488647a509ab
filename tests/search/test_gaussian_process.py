import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from bermo_ray.search.gaussian_process import GaussianProcess


def test_the_surrogates_gradient_is_that_of_its_likelihood() -> None:
    random = np.random.default_rng(0)
    points = random.random((12, 3))
    model = GaussianProcess(points, np.sin(5 * points[:, 0]) + random.normal(size=12))
    for p in (np.zeros(5), np.array([-1.0, 0.5, 0.2, 1.0, -3.0])):
        slopes = approx_fprime(p, lambda q: model._negative_log_likelihood(q)[0], 1e-6)
        assert model._negative_log_likelihood(p)[1] == pytest.approx(slopes, abs=1e-3)
    # By hand, two points at 0 and 1: ½ yᵀK⁻¹y + ½ log |K|.
    one = GaussianProcess(np.array([[0.0], [1.0]]), np.array([-1.0, 1.0]))
    far = math.sqrt(5) / math.exp(0.3)
    near, across = (
        math.e + 0.25 + math.exp(-2),
        math.exp(1 - far) * (1 + far + far * far / 3) - 0.25,
    )
    kernel = np.array([[near, across], [across, near]])
    y = np.array([-1.0, 1.0])
    expected = y @ np.linalg.solve(kernel, y) / 2 + np.log(np.linalg.det(kernel)) / 2
    assert one._negative_log_likelihood(np.array([0.3, 1.0, -2.0]))[0] == pytest.approx(expected)


def test_the_surrogate_gives_back_what_it_saw_and_a_trend_beyond() -> None:
    random = np.random.default_rng(0)
    points = random.random((30, 2))
    values = np.sin(3 * points[:, 0]) + 2 * points[:, 1]
    model = GaussianProcess(points, values)
    mean, deviation = model.predict(points)
    assert np.abs(mean - values).max() < 0.01
    assert deviation.max() < 0.05
    fresh = random.random((50, 2))
    mean, _ = model.predict(fresh)
    assert np.abs(mean - np.sin(3 * fresh[:, 0]) - 2 * fresh[:, 1]).max() < 0.1
    same = GaussianProcess(points[:3], np.ones(3))  # nothing to learn is no error
    assert np.allclose(same.predict(fresh)[0], 1.0)
