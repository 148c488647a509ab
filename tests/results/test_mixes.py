"""Mixes of dropping and pruning, by hand."""

from typing import Any

import pytest

from bermo_ray.results.mixes import describe_frontier, judge_ingredients, mixes
from bermo_ray.trial import L0, Distillation, LayerDrop, Trial
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
    # Of two, t is 12.706 and the mean's standard error half of their distance.
    assert compared[2]["reported_interval"] == pytest.approx(12.706 * 0.02, rel=1e-3)
    assert {(r["fusion"], r["distilled"]) for r in compared} == {("last", False)}
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


def ingredient_row(
    metric: float,
    seed: int,
    fusion: str = "last",
    taught: bool = False,
    dropped: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A trial at half of the size of 12 layers."""
    density = 0.5 * 12 / (12 - dropped)
    trial = Trial(seed=seed, pruning=L0(target_density=density)).replace(fusion=fusion)
    trial = trial.replace(
        distillation=Distillation(teacher="/t") if taught else None,
        layer_drop=LayerDrop(count=dropped) if dropped else None,
    )
    about = {
        "fusion": fusion, "trial_json": trial.to_json(), "recipe": trial.recipe, "remaining": 0.5,
        "run_id": f"{fusion}-{taught}-{dropped}-{seed}", "method": "l0",
        "latency": 0.1 * (12 - dropped) + (0.01 if fusion == "bermo" else 0.0),
    }  # fmt: skip
    return row(dropped, metric, seed=seed, pruning=trial.pruning) | about | more


def crossed_rows(noise: float = 0.01) -> list[dict[str, Any]]:
    """BERMo adds 2 points, a teacher 3, four dropped layers cost 5; seeds are 2·noise apart."""
    return [
        ingredient_row(
            0.80 + 0.02 * (fusion == "bermo") + 0.03 * taught - 0.05 * (dropped > 0) + sign * noise,
            seed, fusion, taught, dropped,
        )
        for seed, sign in ((0, -1), (1, 1))
        for fusion in ("last", "bermo")
        for taught in (False, True)
        for dropped in (0, 4)
    ]  # fmt: skip


def test_ingredients_are_worth_their_mean_effect_at_equal_size() -> None:
    # What is complete is of another size, so no part of it.
    rows = table(row(0, 0.99), row(0, 0.99, seed=1), *crossed_rows())
    teacher, bermo, dropping = judge_ingredients(rows, [0.5], "here")
    assert [v.value for v in (teacher, bermo, dropping)] == pytest.approx([3.0, 2.0, -5.0])
    # Both arms' seeds are 0.02 apart: Welch with 2 degrees of freedom.
    half_width = 4.302653 * (2 * (0.02**2 / 2) / 2) ** 0.5 * 100
    assert bermo.high == pytest.approx(2.0 + half_width)
    assert {v.source for v in (teacher, bermo, dropping)} == {"ours"}
    assert {v.outcome for v in (teacher, bermo)} == {"not settled"}
    outcomes = [v.outcome for v in judge_ingredients(table(*crossed_rows(1e-4)), [0.5], "here")]
    assert outcomes == ["agrees", "agrees", "contradicts"]


def test_a_seed_that_lacks_a_mix_is_left_out_of_the_effects() -> None:
    rows = crossed_rows()
    rows[-1] |= {"status": "diverged"}  # of seed 1, BERMo, taught and dropped
    teacher, *_ = judge_ingredients(table(*rows), [0.5], "here")
    assert (teacher.value, teacher.count) == (pytest.approx(3.0), 1)
    only_pruned = [r for r in crossed_rows() if not r["layers_dropped"]]
    *_, dropping = judge_ingredients(table(*only_pruned), [0.5], "here")
    assert dropping.outcome == "no answer"


def test_the_frontier_names_its_ingredients() -> None:
    complete = row(0, 0.95)
    failed = ingredient_row(0.5, 7, taught=True, status="failed", layers_left=None)
    rows = table(complete, *crossed_rows(), failed)
    compared = mixes(rows, [0.5])
    assert compared.num_rows == 1 + 8
    best = [r for r in compared.to_pylist() if r["best"] and r["size"] == 0.5]
    assert [(r["fusion"], r["distilled"], r["layers_dropped"]) for r in best] == [
        ("bermo", True, 0)
    ]
    # At half of the size and of one metric each: the best, faster without BERMo, faster yet without
    # layers, with BERMo or not; and the complete model. A teacher is on all four.
    assert describe_frontier(compared, rows) == [
        "5 of 9 mixes are on the frontier: BERMo in 2, a teacher in 4, dropped layers in 2, pruned "
        "weights in 4",
        "1 of 18 trials did not complete and are in no mean",
    ]
    by_fusion = {(r["fusion"], r["layers_dropped"]): r["latency"] for r in compared.to_pylist()}
    assert by_fusion["bermo", 4] == pytest.approx(0.81)
    assert by_fusion["last", 4] == pytest.approx(0.80)
