"""Shares of runs that diverge, by hand."""

import pyarrow as pa
import pytest
from scipy.stats import binomtest

from bermo_ray.errors import UserError
from bermo_ray.results.stability import (
    STABILITY,
    compare_divergence,
    count_diverged,
    measure_stability,
)
from tests.support.result_rows import result_table


def runs(fusion: str, *values: float | str) -> pa.Table:
    """Trials by seed: a metric, or the status of one without."""
    return result_table(
        *(
            {"fusion": fusion, "seed": seed, "task": "t", "backbone": "b"}
            | (
                {"status": value}
                if isinstance(value, str)
                else {"status": "completed", "metric": value}
            )
            for seed, value in enumerate(values)
        )
    )


def test_what_failed_neither_diverged_nor_ended() -> None:
    assert count_diverged(runs("last", 0.8, "diverged", "failed", "interrupted", 0.9)) == (1, 3)


def test_shares_means_and_deviations_of_each_arm() -> None:
    both = pa.concat_tables([
        runs("last", 0.80, "diverged", 0.84, "diverged"), runs("bermo", 0.9, 0.9, 0.9, 0.9),
    ])  # fmt: skip
    table = measure_stability(both, ("fusion",))
    assert table.schema.names == ["fusion", *STABILITY.names]
    last, bermo = table.to_pylist()
    assert (last["fusion"], last["diverged"], last["ended"], last["share"]) == ("last", 2, 4, 0.5)
    exact = binomtest(2, 4).proportion_ci(method="exact")
    assert (last["low"], last["high"]) == (pytest.approx(exact.low), pytest.approx(exact.high))
    assert (last["seeds"], last["mean"]) == (2, pytest.approx(0.82))
    assert last["deviation"] == pytest.approx(0.04 / 2**0.5)
    # With none of n the upper end is 1 − 0.025^(1/n).
    assert (bermo["share"], bermo["low"], bermo["high"]) == (0, 0, pytest.approx(1 - 0.025**0.25))
    assert bermo["deviation"] == pytest.approx(0)


def test_of_an_arm_that_never_ended_no_share_is_known() -> None:
    (row,) = measure_stability(runs("last", "failed", "failed"), ("fusion",)).to_pylist()
    assert (row["ended"], row["share"], row["low"], row["mean"]) == (0, None, None, None)


def test_the_difference_is_newcombes_in_points() -> None:
    both = pa.concat_tables([
        runs("last", 0.8, 0.8, *["diverged"] * 8), runs("bermo", *[0.9] * 10),
    ])  # fmt: skip
    estimate = compare_divergence(both, "fusion", "last", "bermo")
    ends = (estimate.value, estimate.low, estimate.high)
    # Wilson: 49.02 to 94.33 of 8 in 10, 0 to 27.75 of none; −80 + √(27.75² + 30.98²) = −38.40.
    assert ends == pytest.approx((-80.0, -94.33, -38.40), abs=0.01)
    assert estimate.count == 10
    with pytest.raises(UserError, match="fusion: no trial with mean trained to its end"):
        compare_divergence(both, "fusion", "last", "mean")
