"""Epochs to a level, by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.intervals import welch_half_width
from bermo_ray.results.convergence import (
    MATCHES,
    compare_epochs,
    describe_levels,
    describe_matches,
    epochs_at,
    epochs_to_reach,
    find_matches,
    highest_common_level,
)
from tests.support.result_rows import result_table

COUNTS = (2, 4, 6)


def arm(fusion: str, *curves: Sequence[float | None], task: str = "t") -> pa.Table:
    """Trials of a seed for each curve, with 2, 4 and 6 epochs; None diverged."""
    return result_table(
        *(
            {
                "fusion": fusion, "task": task, "backbone": "b", "seed": seed, "epochs": epochs,
                "status": "diverged" if value is None else "completed", "metric": value,
            }
            for seed, curve in enumerate(curves)
            for epochs, value in zip(COUNTS, curve, strict=True)
        )
    )  # fmt: skip


# Both get to 0.8, the lowest end of all: BERT after 4 and 6 epochs, BERMo after 2 and 3.
LAST = arm("last", (0.5, 0.8, 0.9), (0.5, 0.6, 0.8))
BERMO = arm("bermo", (0.8, 0.8, 0.9), (0.7, 0.9, 0.9))
BOTH = pa.concat_tables([LAST, BERMO])


def test_a_curve_is_the_best_so_far_with_straight_lines_between() -> None:
    curve = {6: 0.7, 2: 0.6, 4: 0.8}
    assert epochs_at(curve, 0.5) == 2
    assert epochs_at(curve, 0.65) == pytest.approx(2.5)
    assert epochs_at(curve, 0.8) == 4
    assert epochs_at(curve, 0.81) == math.inf
    assert epochs_at({2: 0.6, 4: 0.5, 6: 0.8}, 0.7) == pytest.approx(5)
    assert epochs_at({}, 0.1) == math.inf


def test_a_diverged_run_is_no_point_of_its_seeds_curve() -> None:
    table = arm("last", (0.5, None, 0.9), (None, None, None), (None, 0.8, 0.9))
    by_seed = epochs_to_reach(table, 0.7)
    assert by_seed == {0: pytest.approx(4), 1: math.inf, 2: 4}


def test_the_level_is_the_highest_that_all_seeds_reach() -> None:
    assert highest_common_level(BOTH, "fusion", ("last", "bermo"), "metric_reported") == 0.8
    # Its best so far counts, not its end.
    falling = pa.concat_tables([BOTH, arm("mean", (0.5, 0.95, 0.6))])
    assert highest_common_level(falling, "fusion", ("mean",), "metric_reported") == 0.95
    with pytest.raises(UserError, match="no trial with x or y completed"):
        highest_common_level(BOTH, "fusion", ("x", "y"), "metric_reported")


def test_the_ratio_of_epochs_and_its_reciprocal() -> None:
    estimate = compare_epochs(BOTH, "fusion", "last", "bermo")
    logs = np.log([4, 6]), np.log([2, 3])
    half_width = welch_half_width(*logs)
    assert estimate.value == pytest.approx(0.5)  # √(2·3) / √(4·6)
    assert estimate.low == pytest.approx(0.5 * math.exp(-half_width))
    assert estimate.high == pytest.approx(0.5 * math.exp(half_width))
    assert estimate.count == 2
    swapped = compare_epochs(BOTH, "fusion", "bermo", "last")
    assert swapped.value == pytest.approx(2)
    assert estimate.high is not None
    assert swapped.low == pytest.approx(1 / estimate.high)


def test_seeds_that_are_there_at_once_are_counted() -> None:
    lost = arm("last", (None, None, None), task="u")
    assert describe_levels(pa.concat_tables([lost, BOTH]), "fusion", ("last", "bermo")) == [
        "t on b: the highest level that all reach is 80.00: 1 of 4 curves are there with the "
        "fewest epochs, 2, which draws the ratio towards 1"
    ]
    (line,) = describe_levels(LAST, "fusion", ("last",))
    assert line.endswith("0 of 2 curves are there with the fewest epochs, 2")


def test_what_keeps_epochs_from_being_compared() -> None:
    with pytest.raises(UserError, match="^fusion: last does not reach 0.85 in 1 of 2 seeds$"):
        compare_epochs(BOTH, "fusion", "last", "bermo", level=0.85)
    with pytest.raises(UserError, match="every seed of both arms reaches 0.5 with 2 already"):
        compare_epochs(BOTH, "fusion", "last", "bermo", level=0.5)
    lost = pa.concat_tables([LAST, arm("bermo", (0.8, 0.8, 0.9), (None, None, None))])
    with pytest.raises(UserError, match="bermo does not reach 0.8 in 1 of 2 seeds"):
        compare_epochs(lost, "fusion", "last", "bermo")
    with pytest.raises(UserError, match="no trial with mean, so there is nothing to compare"):
        compare_epochs(BOTH, "fusion", "last", "mean")


def test_matches_are_read_off_the_means() -> None:
    matches = find_matches(BOTH, "fusion", "last", "bermo")
    assert matches.schema == MATCHES
    last, bermo = matches.to_pylist()
    # BERMo ends at 0.9, BERT at 0.85 with one seed of two up to it.
    assert (last["arm"], last["other"], last["level"]) == ("last", "bermo", pytest.approx(0.9))
    assert (last["epochs"], last["reached"], last["seeds"]) == (None, 1, 2)
    # BERMo's means are 0.75, 0.85 and 0.9.
    assert (bermo["arm"], bermo["other_epochs"]) == ("bermo", 6)
    assert (bermo["level"], bermo["epochs"]) == (pytest.approx(0.85), pytest.approx(4))
    assert (bermo["reached"], bermo["seeds"]) == (2, 2)
    never, after = describe_matches(matches, {("t", "bermo"): 3.0})
    assert never == (
        "t on b: 90.00, which bermo has after 6 epochs, last never reaches (means over seeds; 1 of "
        "2 seeds by themselves)"
    )
    assert "bermo reaches after 4.0 (" in after
    assert after.endswith("; the paper's bermo converges after 3")


def test_the_best_is_matched_though_more_epochs_are_worse() -> None:
    falling = pa.concat_tables([arm("last", (0.5, 0.8, 0.4)), arm("bermo", (0.7, 0.9, 0.9))])
    last, bermo = find_matches(falling, "fusion", "last", "bermo").to_pylist()
    assert (bermo["level"], bermo["other_epochs"], bermo["epochs"]) == (0.8, 4, pytest.approx(3))
    assert (last["level"], last["other_epochs"], last["epochs"]) == (0.9, 4, None)


def test_no_match_of_an_arm_that_never_completed() -> None:
    lost = pa.concat_tables([arm("last", (None, None, None)), arm("bermo", (0.5, 0.6, 0.7))])
    (last,) = find_matches(lost, "fusion", "last", "bermo").to_pylist()
    assert (last["arm"], last["epochs"], last["reached"], last["seeds"]) == ("last", None, 0, 1)
    assert find_matches(LAST, "fusion", "last", "bermo").num_rows == 0
