"""Each seed's curve, by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.results import frontier, remaining_at
from bermo_ray.results.curves import Curve, trace_curves
from tests.support.result_rows import points, seeded


def test_remaining_weights_between_two_points() -> None:
    """On a log scale half of the way from 0.1 to 0.4 is 0.2."""
    front = frontier(points((0.1, 0.5), (0.4, 0.9), (0.7, 0.8)))
    assert remaining_at(front, 0.7) == pytest.approx(0.2)
    assert remaining_at(front, 0.9) == pytest.approx(0.4)
    assert remaining_at(front, 0.1) == pytest.approx(0.1)  # the sparsest is good enough
    assert math.isnan(remaining_at(front, 0.91))
    assert remaining_at(front, math.nextafter(0.9, 1)) == pytest.approx(0.4)  # a mean's last bit
    assert math.isnan(remaining_at(front.slice(0, 0), 0.5))


def test_the_reported_metric_need_not_rise_along_a_frontier() -> None:
    """Reported are 0.7, 0.6, 0.9, 0.9: from 20 % on the best so far rises from 0.7 to 0.9."""
    front = frontier(points((0.1, 0.5, 0.7), (0.2, 0.6, 0.6), (0.8, 0.7, 0.9), (0.9, 0.8, 0.9)))
    assert remaining_at(front, 0.8) == pytest.approx(0.4)
    assert remaining_at(front, 0.9) == pytest.approx(0.8)  # not at 90 %
    assert remaining_at(front, 0.7) == pytest.approx(0.1)
    assert remaining_at(front, 0.65) == pytest.approx(0.1)


def test_a_curve_steps_from_point_to_point() -> None:
    curve = Curve(np.array([0.1, 0.5]), np.array([0.8, 0.7]), np.array([0.5, 0.5]))
    sizes = np.array([0.09, 0.1, 0.1 - 1e-15, 0.49, 0.5, 1.0])
    assert curve.at_sizes(sizes) == pytest.approx([math.nan, 0.8, 0.8, 0.8, 0.7, 0.7], nan_ok=True)


def test_the_mean_share_of_a_curve_is_over_log_remaining() -> None:
    """From 10 % to 50 % it is 0.3 of 0.4 above a constant answer, from there on 0.2 of 0.4."""
    curve = Curve(np.array([0.1, 0.5]), np.array([0.8, 0.7]), np.array([0.5, 0.5]))
    expected = (0.75 * math.log(5) + 0.5 * math.log(2)) / math.log(10)
    assert curve.mean_share(0.1, 0.9) == pytest.approx(expected)
    inner = (0.75 * math.log(2.5) + 0.5 * math.log(2)) / math.log(5)
    assert curve.mean_share(0.2, 0.9) == pytest.approx(inner)
    assert curve.mean_share(0.6, 0.9) == pytest.approx(0.5)
    for low, reference in ((0.09, 0.9), (1.0, 0.9), (math.inf, 0.9), (0.1, 0.5)):
        assert math.isnan(curve.mean_share(low, reference))


def test_curves_are_of_groups_and_seeds_whose_trials_ended() -> None:
    rows = pa.concat_tables([
        seeded([("a", 1, 0.2, 0.9, 0.8), ("b", 0, 0.3, 0.9, 0.7), ("c", 0, 0.4, 0.8, 0.9)],
               fusion="last", constant_metric=0.5),
        seeded([("d", 0, 0.1, 0.8, 0.6)], fusion="bermo"),
        seeded([("e", 2, 0.1, 0.5)], fusion="last", status="diverged"),
        seeded([("f", 3, 0.1, 0.9)], fusion="last", status="failed"),
        seeded([("g", 4, 0.1, 0.5)], fusion="last", constant_metric=0.5),
    ])  # fmt: skip
    curves = trace_curves(rows, ("fusion",))
    assert list(curves) == [("last",), ("bermo",)]
    last = curves["last",]
    assert list(last) == [0, 1, 2, 4]
    # Seed 2 diverged and seed 4 is no better than a constant answer: curves without a point.
    assert [c.remaining.tolist() for c in last.values()] == [[0.3], [0.2], [], []]
    assert [c.reported.tolist() for c in last.values()] == [[0.7], [0.8], [], []]
    assert last[1].constant.tolist() == [0.5]
    assert np.isnan(curves["bermo",][0].constant).all()
    assert [c.sparsest for c in last.values()] == [0.3, 0.2, math.inf, math.inf]
    assert math.isnan(last[2].log_remaining_at(0.1))
    assert np.isnan(last[2].at_sizes(np.array([0.5, 1.0]))).all()
    assert list(trace_curves(rows)) == [()]
    assert trace_curves(rows.slice(0, 0), ("fusion",)) == {}
