"""Time saved, from times of rounds made by hand."""

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results.inference_times import estimate_time_saved, median_estimate, time_by_depth


def times(*seconds: tuple[float, float], backbone: str = "b") -> pa.Table:
    """(of all 12 layers, of 6) in each round."""
    return pa.Table.from_pylist([
        {"backbone": backbone, "layers_left": left, "round": number, "seconds": taken}
        for number, pair in enumerate(seconds)
        for left, taken in zip((12, 6), pair, strict=True)
    ])  # fmt: skip


def test_models_are_compared_within_a_round() -> None:
    # The third round is three times slower for both; what is saved stays 40 to 60 %.
    table = times((1.0, 0.6), (1.0, 0.5), (3.0, 1.2), (1.0, 0.5), (1.0, 0.5), (1.0, 0.45))
    assert time_by_depth(table) == {("b", 12): 1.0, ("b", 6): 0.5}
    saved = estimate_time_saved(table, 0.5)
    assert (saved.value, saved.low, saved.high) == pytest.approx((50.0, 40.0, 60.0))
    assert (saved.count, saved.unit) == (6, "rounds")


def test_encoders_count_alike() -> None:
    both = pa.concat_tables([times((1.0, 0.6)), times((10.0, 4.0), backbone="c")])
    assert estimate_time_saved(both, 0.5).value == pytest.approx(50.0)
    with pytest.raises(UserError, match="no model without 25% of its layers"):
        estimate_time_saved(both, 0.25)


def test_five_rounds_have_no_interval_and_nine_leave_one_out_on_either_side() -> None:
    # The median is outside of all of n values with 2·(1/2)^n: 6.25 % of five, 3.1 % of six; outside
    # of the second smallest and largest of nine with 2·(1 + 9)/2^9 = 3.9 %.
    assert median_estimate([1, 2, 3, 4, 5], "rounds").low is None
    nine = median_estimate([9, 2, 3, 4, 5, 6, 7, 8, 1], "rounds")
    assert (nine.value, nine.low, nine.high) == (5.0, 2.0, 8.0)
