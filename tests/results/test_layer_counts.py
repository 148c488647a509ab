"""Losses and counts of dropped layers, by hand."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import figures, layer_counts, layer_losses
from bermo_ray.results.layer_counts import encoders_with_shared_layers
from bermo_ray.results.mixes import mixes
from tests.support.result_rows import dropped_row as row
from tests.support.result_rows import predictions_table as predictions
from tests.support.result_rows import result_table as table


def test_losses_and_savings_against_the_undropped_model() -> None:
    undropped, four, six = layer_losses(table(
        row(0, 0.90), row(0, 0.94, seed=1), row(6, 0.90), row(6, 0.88, seed=1),
        row(4, 0.5, status="diverged"), row(2, 0.9, status="failed"),
    )).to_pylist()  # fmt: skip
    assert (undropped["strategy"], undropped["layers_dropped"]) == ("none", 0)
    assert (undropped["seeds"], undropped["dropped_layers"]) == (2, [])
    assert undropped["metric_reported"] == pytest.approx(0.92)
    assert (six["layers_dropped"], six["seeds"], six["parameters"]) == (6, 2, 68)
    assert six["dropped_layers"] == [7, 8, 9, 10, 11, 12]
    assert six["loss"] == pytest.approx(3.0)  # 100·(0.92 − 0.89)
    assert six["saved"] == pytest.approx(42 / 110)
    assert six["train_speedup"] == pytest.approx(2.0)
    assert six["time_saved"] == pytest.approx(0.5)
    # Paired by seed 0 and 6 points are lost; t of one degree of freedom is 12.706.
    assert (six["loss_low"], six["loss_high"]) == pytest.approx((3 - 38.12, 3 + 38.12), abs=0.01)
    assert (six["p_value"], six["p_seed"], undropped["loss_low"]) == (None, None, None)
    assert four["loss"] == pytest.approx(42.0)
    assert layer_losses(table(row(2, 0.9))).num_rows == 0


def test_losses_are_of_what_is_reported() -> None:
    rows = table(row(0, 0.9, (0.99, 0.90)), row(6, 0.9, (0.99, 0.80)), row(4, 0.9, metric_test=0.7))
    undropped, four, six = layer_losses(rows).to_pylist()
    assert undropped["metric_reported"] == 0.90
    assert (six["metric_reported"], six["loss"]) == pytest.approx((0.80, 10.0))
    assert four["metric_reported"] == 0.7


def test_shared_layers_are_said_to_be_faster_not_smaller() -> None:
    same = {"parameters": 12}
    losses = layer_losses(table(row(0, 0.9, **same), row(6, 0.9, **same)))
    assert losses["time_saved"].to_pylist()[1] == pytest.approx(0.5)
    assert encoders_with_shared_layers(losses) == ["b"]
    assert encoders_with_shared_layers(layer_losses(table(row(0, 0.9), row(6, 0.9)))) == []


def test_counts_are_found_on_one_half_and_verified_on_the_other() -> None:
    rows = table(
        row(0, 0.9, (0.90, 0.91)), row(3, 0.9, (0.895, 0.90)),
        row(4, 0.9, (0.885, 0.86)), row(6, 0.9, (0.87, 0.80)),
    )  # fmt: skip
    # Every other row verifies; what the rest say does not count.
    wrong = {"0-0": {0, 2, 4}, "3-0": {1}, "4-0": set(range(1, 19, 2)), "6-0": {6, 8, 10, 12, 14}}
    counts = layer_counts(rows, (1.0, 2.0, 5.0), lambda run: predictions(wrong[run])).to_pylist()
    assert [r["layers_dropped"] for r in counts] == [3, 4, 6]
    assert [round(r["loss_selection"], 6) for r in counts] == [0.5, 1.5, 3.0]
    assert [round(r["loss_verification"], 6) for r in counts] == [1.0, 5.0, 11.0]
    # One against none: p = 1; nine against none: 2·(1/2)^9; no difference: 1.
    assert [r["p_value"] for r in counts] == pytest.approx([1.0, 2 * 0.5**9, 1.0])
    assert [r["significant"] for r in counts] == [False, True, False]
    assert {(r["trainings"], r["grid"], r["monotone"]) for r in counts} == {(4, 12, True)}
    assert counts[2]["dropped_layers"] == [7, 8, 9, 10, 11, 12]
    assert [r["layers_left"] for r in counts] == [9, 8, 6]


def test_a_regression_has_no_p_value() -> None:
    rows = table(row(0, 0.9, (0.90, 0.91)), row(3, 0.9, (0.895, 0.90)))
    unknown = predictions(set()).set_column(1, "right", pa.nulls(100))
    (count,) = layer_counts(rows, (1.0,), lambda run: unknown).to_pylist()
    assert (count["layers_dropped"], count["p_value"], count["significant"]) == (3, None, None)


def test_nothing_to_spare_and_nothing_to_lose() -> None:
    rows = table(row(0, 0.9, (0.9, 0.9)), row(6, 0.5, (0.5, 0.5)))
    (none,) = layer_counts(rows, (1.0,)).to_pylist()
    assert (none["layers_dropped"], none["loss_verification"], none["p_value"]) == (0, 0.0, None)
    chance = table(row(0, 0.5, (0.5, 0.5), status="diverged"), row(6, 0.5, (0.5, 0.5)))
    assert layer_counts(chance, (1.0,)).num_rows == 0
    bumpy = table(row(0, 0.9, (0.9, 0.9)), row(3, 0.9, (0.8, 0.8)), row(6, 0.9, (0.895, 0.9)))
    (bump,) = layer_counts(bumpy, (1.0,)).to_pylist()
    assert (bump["layers_dropped"], bump["monotone"]) == (6, False)


def test_a_count_that_lacks_a_seed_is_left_out() -> None:
    rows = [row(k, 0.9, (0.9, 0.9), seed=s) for k in (0, 3) for s in (0, 1)]
    lacking = [*rows, row(6, 0.9, (0.9, 0.9)), row(6, 0.9, (0.9, 0.9), seed=1, status="failed")]
    (count,) = layer_counts(table(*lacking), (1.0,)).to_pylist()
    assert count["layers_dropped"] == 3
    without = [rows[0], row(0, 0.9, seed=1, status="failed"), *rows[2:]]
    assert layer_counts(table(*without), (1.0,)).num_rows == 0


def by_seed(dropped: int, *lost: float) -> list[dict[str, Any]]:
    """A row for each seed that loses so many points on the verification half, none on the other."""
    return [
        row(dropped, 0.9, (0.9, 0.9 - points / 100), seed=seed) for seed, points in enumerate(lost)
    ]


def test_an_interval_over_seeds_says_whether_a_count_could_be_off() -> None:
    undropped = by_seed(0, 0.0, 0.0, 0.0)
    worse = [
        row(6, 0.9, (0.5, 0.9 - lost / 100), seed=seed) for seed, lost in enumerate((2.9, 3, 3.1))
    ]
    steady = table(*undropped, *by_seed(3, 0.4, 0.5, 0.6), *worse)
    (count,) = layer_counts(steady, (1.0,)).to_pylist()
    # Student's t of two degrees of freedom: 4.302653.
    half_width = 4.302653 * 0.1 / 3**0.5
    assert (count["layers_dropped"], count["certain"]) == (3, True)
    assert count["loss_verification"] == pytest.approx(0.5)
    assert count["loss_low"] == pytest.approx(0.5 - half_width)
    assert count["loss_high"] == pytest.approx(0.5 + half_width)
    # 0.5 + 0.248 is beyond 0.7; 3 − 0.248 is within 2.8, although 6 is not by its mean.
    certain = [r["certain"] for r in layer_counts(steady, (0.7, 0.75, 2.75, 2.8)).to_pylist()]
    assert certain == [False, True, True, False]


def test_differences_are_paired_by_seed() -> None:
    level = {0: 0.9, 1: 0.8, 2: 0.7}  # seeds differ far more than the counts do
    pairs = [
        row(k, 0.9, (m - k / 1000, m - k / 1000 - s / 10000), seed=s)
        for k in (3, 0) for s, m in reversed(level.items())
    ]  # fmt: skip
    for pair in pairs:
        if pair["layers_dropped"] == 0:
            pair["metric_verification"] = level[pair["seed"]]
    (count,) = layer_counts(table(*pairs), (1.0,)).to_pylist()
    # 0.3, 0.31 and 0.32 points are lost.
    half_width = 4.302653 * 0.01 / 3**0.5
    assert count["loss_low"] == pytest.approx(0.31 - half_width)
    assert count["loss_high"] == pytest.approx(0.31 + half_width)


def test_a_count_at_the_end_of_what_can_be_dropped_has_none_beyond_it() -> None:
    rows = table(*by_seed(0, 0.0, 0.0), *by_seed(11, 0.5, 0.5))
    (count,) = layer_counts(rows, (1.0,)).to_pylist()
    assert (count["layers_dropped"], count["certain"]) == (11, True)
    (untried,) = layer_counts(
        table(*by_seed(0, 0.0, 0.0), *by_seed(10, 0.5, 0.5)), (1.0,)
    ).to_pylist()
    assert untried["certain"] is False


def test_one_seed_has_no_interval() -> None:
    (count,) = layer_counts(table(*by_seed(0, 0.0), *by_seed(3, 0.5)), (1.0,)).to_pylist()
    assert count["layers_dropped"] == 3
    assert (count["loss_low"], count["loss_high"], count["certain"]) == (None, None, None)


def test_a_seed_run_twice_counts_once() -> None:
    rows = [*by_seed(0, 0.0, 0.0), *by_seed(3, 0.4, 0.6)]
    (once,), (twice,) = (
        layer_counts(table(*some), (1.0,)).to_pylist() for some in (rows, rows + rows)
    )
    assert once["layers_dropped"] == 3
    assert twice == once
    assert layer_losses(table(*rows, *rows))["seeds"].to_pylist() == [2, 2]


def test_too_few_rows_to_verify_on_are_one_line() -> None:
    rows = table(row(0, 0.9, (0.9, 0.9)), row(3, 0.9, (0.9, 0.9)))
    line = "data.dev_rows: 3 dev rows leave 1 to verify tense on, expected >= 2"
    with pytest.raises(UserError, match=f"^{line}$"):
        layer_counts(rows, (1.0,), lambda run: predictions(set(), rows=3))
    (count,) = layer_counts(rows, (1.0,), lambda run: predictions(set(), rows=4)).to_pylist()
    assert count["p_value"] == 1.0


def test_counts_from_a_model_that_had_lost_layers_before() -> None:
    """A trial started from one without its top layer: two more are two, not three."""
    undropped = row(1, 0.9, (0.9, 0.9)) | {"strategy": None}
    losses = layer_losses(table(undropped, row(3, 0.88, (0.88, 0.88)))).to_pylist()
    assert [(r["strategy"], r["layers_dropped"]) for r in losses] == [("none", 0), ("top", 2)]
    assert losses[1]["loss"] == pytest.approx(2.0)


def test_nothing_usable_is_no_error(tmp_path: Path) -> None:
    none = table(row(0, 0.5, status="failed"))
    assert mixes(none, [0.5]).num_rows == 0
    losses = layer_losses(none)
    assert losses.num_rows == 0
    assert figures.strategies_figure(losses, tmp_path / "f.png").is_file()
    counts = layer_counts(none, (1.0,))
    assert figures.counts_figure(counts, tmp_path / "c.png").is_file()
    assert figures.mixes_figure(mixes(none, [0.5]), "accuracy", tmp_path / "m.png").is_file()
