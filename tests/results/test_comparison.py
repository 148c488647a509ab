"""Parameter efficiency along two frontiers, by hand."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from bermo_ray.errors import UserError
from bermo_ray.results import efficiency
from tests.support.result_rows import seeded

Row = tuple[str, int, float, float]


def test_efficiency_is_the_ratio_along_both_frontiers() -> None:
    first = seeded([("a", 0, 0.2, 0.7), ("b", 0, 0.6, 0.9)])
    second = seeded([("c", 0, 0.1, 0.7), ("d", 0, 0.4, 0.9), ("e", 0, 0.5, 0.6)])
    result = efficiency(first, second, 0.8)
    assert result.ratio == pytest.approx(0.4 / 0.25)
    assert (result.seeds, result.unreached) == (1, 0)
    assert math.isnan(result.low)
    beyond = efficiency(first, second, 0.95)
    assert math.isnan(beyond.ratio)
    assert beyond.unreached == 1


def test_the_interval_is_welchs_on_the_logs_of_each_seed() -> None:
    sizes = {0: (0.2, 0.1), 1: (0.4, 0.12), 2: (0.3, 0.11)}
    first = seeded([("a", seed, a, 0.8) for seed, (a, _) in sizes.items()])
    second = seeded([("b", seed, b, 0.8) for seed, (_, b) in sizes.items()])
    result = efficiency(first, second, 0.8)
    a, b = np.log(list(sizes.values())).T
    assert result.ratio == pytest.approx(math.exp(a.mean() - b.mean()))
    interval = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx(tuple(np.exp(interval)))
    assert result.seeds == 3
    # Swapped, it is the reciprocal.
    swapped = efficiency(second, first, 0.8)
    assert (swapped.ratio, swapped.low, swapped.high) == pytest.approx(
        (1 / result.ratio, 1 / result.high, 1 / result.low)
    )


def test_each_seed_has_a_frontier_of_its_own() -> None:
    """By hand: at 0.8 the first seed lies half way between 0.2 and 0.6, the other at 0.3."""
    rows: list[Row] = [("a", 0, 0.2, 0.7), ("b", 0, 0.6, 0.9), ("a", 1, 0.3, 0.8)]
    rows.append(("b", 1, 0.5, 0.75))  # beaten by the other recipe in this seed
    other = seeded([("c", 0, 0.1, 0.8), ("c", 1, 0.1, 0.8)])
    result = efficiency(seeded(rows), other, 0.8)
    assert result.ratio == pytest.approx(math.sqrt(0.4 * 0.3) / 0.1)


def test_a_seed_that_does_not_get_there_is_the_answer() -> None:
    first = seeded([("a", 0, 0.2, 0.9), ("a", 1, 0.2, 0.7)])
    second = seeded([("b", 0, 0.1, 0.9), ("b", 1, 0.1, 0.9)])
    result = efficiency(first, second, 0.8)
    assert math.isnan(result.ratio)
    assert (result.seeds, result.unreached) == (2, 1)


def test_what_one_lucky_seed_reached_alone_does_not_count() -> None:
    rows: list[Row] = [("a", 0, 0.2, 0.8), ("a", 1, 0.2, 0.8), ("lucky", 0, 0.01, 0.9)]
    second = seeded([("b", 0, 0.1, 0.8), ("b", 1, 0.1, 0.8)])
    result = efficiency(seeded(rows), second, 0.8)
    assert (result.ratio, result.low, result.high) == pytest.approx((2.0, 2.0, 2.0))


def test_sets_with_different_seeds_are_one_line() -> None:
    first = seeded([("a", 0, 0.2, 0.8), ("a", 1, 0.2, 0.8)])
    with pytest.raises(UserError, match="^seeds: one has 0, 1, the other 0; compare what was"):
        efficiency(first, seeded([("b", 0, 0.1, 0.8)]), 0.8)
    with pytest.raises(UserError, match="the other none"):
        efficiency(first, seeded([]), 0.8)


@pytest.mark.parametrize(("count", "lowest"), [(3, 0.92), (5, 0.92)])
def test_a_95_percent_interval_covers_the_truth_as_often(count: int, lowest: float) -> None:
    """The true ratio is 1.5; noise of 20 % on every seed's size. A percentile bootstrap over so
    few seeds covered 70 and 87 %."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        sets = []
        for name, size in (("a", 0.3), ("b", 0.2)):
            noise = np.exp(0.2 * random.standard_normal(count))
            rows = [(f"{name}{r}", s, size * r * noise[s], 0.6 + 0.2 * r) for s in range(count) for r in (1, 2)]  # fmt: skip # noqa: E501
            sets.append(seeded(rows))
        result = efficiency(*sets, 0.8)
        covered += result.low <= 1.5 <= result.high
    assert lowest <= covered / 400 <= 0.98
