"""Mixes of dropping and pruning, by hand."""

import pytest

from bermo_ray.results.mixes import mixes
from bermo_ray.trial import L0
from tests.support.result_rows import dropped_row as row
from tests.support.result_rows import predictions_table as predictions
from tests.support.result_rows import result_table as table


def test_mixes_of_a_size_are_put_together_and_compared() -> None:
    half = {k: L0(target_density=0.5 * 12 / (12 - k), flat_end=2) for k in (0, 4)}
    rows = table(
        row(0, 0.90), row(6, 0.80, remaining=0.5),
        row(0, 0.85, pruning=half[0], remaining=0.51, run_id="p0"),
        row(4, 0.87, pruning=half[4], remaining=0.51, run_id="p4"),
        row(4, 0.91, pruning=half[4], remaining=0.51, run_id="p4s", seed=1),
    )  # fmt: skip
    wrong = {"p4": {1}, "p0": set(range(0, 100, 2)), "6-0": {2, *range(3, 17, 2)}}
    compared = mixes(rows, [0.5], lambda run: predictions(wrong.get(run, set()))).to_pylist()
    sizes = [(r["size"], r["layers_dropped"]) for r in compared]
    assert sizes == [(1.0, 0), (0.5, 0), (0.5, 4), (0.5, 6)]
    assert [r["target_density"] for r in compared] == pytest.approx([None, 0.5, 0.75, None])
    assert [r["best"] for r in compared] == [True, False, True, False]
    assert [r["seeds"] for r in compared] == [1, 1, 2, 1]
    assert compared[2]["metric_reported"] == pytest.approx(0.89)
    assert compared[2]["reported_sd"] == pytest.approx(0.04 / 2**0.5)
    # The even rows verify nothing: one against none, and one against seven of eight.
    assert [r["p_value"] for r in compared] == pytest.approx([None, 1.0, None, 2 * 9 / 2**8])
    # Pruned alone is as large as 4 dropped, worse and slower: the only one beaten.
    assert [r["on_frontier"] for r in compared] == [True, False, True, True]
    assert [r["latency"] for r in compared] == pytest.approx([1.2, 1.2, 0.8, 0.6])


def test_the_best_of_a_size_is_chosen_on_one_half_and_reported_with_the_other() -> None:
    rows = table(
        row(0, 0.9, (0.9, 0.9)), row(6, 0.8, (0.80, 0.70), remaining=0.5),
        row(0, 0.8, (0.75, 0.85), pruning=L0(target_density=0.5, flat_end=2), remaining=0.5,
            run_id="pruned"),
    )  # fmt: skip
    _, pruned, dropped = mixes(rows, [0.5]).to_pylist()
    assert (dropped["best"], pruned["best"]) == (True, False)
    assert (dropped["metric_selection"], dropped["metric_reported"]) == (0.80, 0.70)
    # Of equal size, dropped is better on the half that chooses, and faster.
    assert (dropped["on_frontier"], pruned["on_frontier"]) == (True, False)
