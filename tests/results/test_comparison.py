"""Parameter efficiency along two frontiers, by hand."""

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.results import efficiency, frontier, remaining_at
from bermo_ray.results.comparison import _Side
from tests.support.result_rows import points, seeded


def test_efficiency_is_the_ratio_along_both_frontiers() -> None:
    first = seeded([("a", 0, 0.2, 0.7), ("b", 0, 0.6, 0.9)])
    second = seeded([("c", 0, 0.1, 0.7), ("d", 0, 0.4, 0.9), ("e", 0, 0.5, 0.6)])
    result = efficiency(first, second, 0.8)
    assert result.ratio == pytest.approx(0.4 / 0.25)
    assert (result.seeds, result.undecided) == (1, 0.0)
    assert math.isnan(result.low)
    assert math.isnan(efficiency(first, second, 0.95).ratio)


def test_the_interval_is_over_seeds() -> None:
    """Two seeds: a resample has the one, the other, or both, with ¼, ¼ and ½ of the chances."""
    first = seeded([("a", 0, 0.2, 0.8), ("a", 1, 0.4, 0.8)])
    second = seeded(
        [("c", 0, 0.1, 0.8), ("c", 1, 0.1, 0.8), ("x", 0, 0.9, 0.5), ("x", 1, 0.9, 0.5)]
    )
    result = efficiency(first, second, 0.8)
    assert result.ratio == pytest.approx(3.0)
    assert (result.low, result.high) == pytest.approx((2.0, 4.0))
    assert result.undecided == 0.0
    # A recipe that only one seed has does not count where that seed was not drawn.
    lucky = pa.concat_tables([second, seeded([("lucky", 0, 0.01, 0.9)])])
    wide = efficiency(first, lucky, 0.8)
    assert wide.ratio == pytest.approx(30.0)
    assert wide.low == pytest.approx(4.0)
    harder = seeded([("a", 0, 0.2, 0.9), ("a", 1, 0.2, 0.7)])
    assert efficiency(harder, second, 0.8).undecided == pytest.approx(0.25, abs=0.05)


def test_recipes_that_never_count_are_left_out_exactly() -> None:
    """The interval is the same whether beaten recipes are there or not."""
    random.seed(2)
    rows = [
        (f"{i}", s, random.random(), min(1.0, random.random() * 0.3 + 0.7)) for i in range(60)
        for s in range(3)
    ]  # fmt: skip
    side = _Side(seeded(rows))
    assert len(set(side.codes)) < 60
    for weights in ([1, 1, 1], [3, 0, 0], [0, 2, 1], [1, 0, 2]):
        means = {}
        for name in {r[0] for r in rows}:
            of_seeds = [(r[2], r[3], weights[r[1]]) for r in rows if r[0] == name and weights[r[1]]]
            total = sum(w for *_, w in of_seeds)
            means[name] = (sum(x * w for x, _, w in of_seeds) / total, sum(y * w for _, y, w in of_seeds) / total)  # fmt: skip # noqa: E501
        front = frontier(points(*means.values()))
        for level in (0.75, 0.8, 0.85):
            interpolated = side.remaining_at(level, [0, 1, 2], np.array(weights, dtype=float))
            assert interpolated == pytest.approx(remaining_at(front, level), nan_ok=True)
