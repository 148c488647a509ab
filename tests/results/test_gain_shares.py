"""Shares of a gain, by hand."""

import math

import pytest

from bermo_ray.errors import UserError
from bermo_ray.results.gain_shares import estimate_gain_share

T2, T1 = 4.302653, 12.706205  # Student's t, 97.5 %, of two degrees of freedom and of one


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_of_a_gain_that_all_seeds_agree_on_it_is_the_interval_of_the_part() -> None:
    share = estimate_gain_share(
        by_seed(0.5, 0.5, 0.5), by_seed(0.54, 0.55, 0.56), by_seed(0.6, 0.6, 0.6)
    )
    half_width = T2 * 0.1 / math.sqrt(3)
    assert share.value == pytest.approx(0.5)
    assert (share.low, share.high) == (
        pytest.approx(0.5 - half_width, rel=1e-5),
        pytest.approx(0.5 + half_width, rel=1e-5),
    )
    assert share.count == 3


def test_ends_solve_fiellers_equation() -> None:
    base, part, full = by_seed(0, 0, 0), by_seed(3, 4, 5), by_seed(9, 12, 10)
    share = estimate_gain_share(base, part, full)
    assert share.value == pytest.approx(12 / 31)
    for end in (share.low, share.high):
        assert end is not None
        # Seeds' part − ρ · gain: a mean that is just t standard errors from 0.
        rest = [part[s] - end * full[s] for s in base]
        mean = sum(rest) / 3
        error = math.sqrt(sum((x - mean) ** 2 for x in rest) / 2 / 3)
        assert abs(mean) == pytest.approx(T2 * error, rel=1e-5)
    assert share.low < share.value < share.high  # type: ignore[operator]


def test_seeds_go_in_pairs() -> None:
    """Bases that differ by seed say nothing where the gains are alike."""
    base = by_seed(0.1, 0.5, 0.9)
    part, full = ({s: v + gain for s, v in base.items()} for gain in (0.02, 0.04))
    share = estimate_gain_share(base, part, full)
    assert (share.low, share.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_seeds_that_an_arm_lacks_are_left_out() -> None:
    share = estimate_gain_share({0: 0.0, 1: 0.0, 2: 9.0}, by_seed(1, 1), {0: 2.0, 1: 2.0, 3: 7.0})
    assert (share.value, share.count) == (0.5, 2)
    with pytest.raises(UserError, match="no seed completed in all three arms"):
        estimate_gain_share({0: 1.0}, {1: 1.0}, {0: 1.0})


def test_a_gain_that_is_not_clearly_above_0_has_no_shares() -> None:
    base, part = by_seed(0, 0), by_seed(1, 1)
    # The mean 1.5 is clear of 0 where t · s / √2 is smaller: s below 0.167.
    for spread, clear in ((0.16, True), (0.17, False)):
        full = by_seed(1.5 - spread / math.sqrt(2), 1.5 + spread / math.sqrt(2))
        assert (T1 * spread / math.sqrt(2) < 1.5) == clear
        if clear:
            assert estimate_gain_share(base, part, full).value == pytest.approx(2 / 3)
            continue
        with pytest.raises(UserError, match="not clearly above 0"):
            estimate_gain_share(base, part, full)
    with pytest.raises(UserError, match="not clearly above 0"):
        estimate_gain_share(base, part, by_seed(-1, -1))
    with pytest.raises(UserError, match="not clearly above 0"):
        estimate_gain_share({0: 0.0}, {0: 1.0}, {0: 2.0})  # one seed has no interval
