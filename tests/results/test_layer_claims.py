"""Claims on dropped layers, from tables made by hand."""

import math
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import layer_counts, layer_losses, layer_text
from bermo_ray.results.layer_claims import (
    CARRIED,
    describe_carried,
    estimate_excess,
    judge_counts,
    judge_dropping,
)
from bermo_ray.results.layer_counts import compare_at_half, with_dropping
from bermo_ray.training.inference_time import INFERENCE_TIMES
from bermo_ray.trial import LayerDrop, Trial
from tests.results.test_text import shown
from tests.support.result_rows import dropped_row as row
from tests.support.result_rows import predictions_table as predictions
from tests.support.result_rows import result_table as table


def by(strategy: str, metric: float, seed: int = 0, dropped: int = 6, **changes: Any) -> Any:
    """A trial without half of its layers, or another number, by that strategy."""
    trial = Trial(layer_drop=LayerDrop(strategy=strategy, count=dropped), seed=seed)
    about = {"strategy": strategy, "trial_json": trial.to_json(), "recipe": trial.recipe}
    return row(dropped, metric, seed=seed) | about | {"run_id": f"{strategy}-{seed}"} | changes


def again(metric: float, seed: int = 0) -> Any:
    """A trial of a model that was fine-tuned before its top layers went."""
    trial = Trial(layer_drop=LayerDrop(strategy="top", count=6), warm_start="/folder", seed=seed)
    return by("top", metric, seed, trial_json=trial.to_json(), recipe=trial.recipe)


def above(limit: float, dropped: int, metric: float) -> Any:
    trial = Trial(layer_drop=LayerDrop(strategy="contribution", threshold=limit))
    return by("contribution", metric, 0, dropped, trial_json=trial.to_json(), recipe=trial.recipe)


def test_top_is_compared_with_the_mean_of_the_others_at_half_of_the_layers() -> None:
    rows = table(
        row(0, 0.90), row(0, 0.92, seed=1),
        by("top", 0.88), by("top", 0.90, 1), by("bottom", 0.70), by("bottom", 0.72, 1),
        by("symmetric", 0.84), by("symmetric", 0.86, 1),
        by("bottom", 0.10, dropped=2), above(0.95, 6, 0.2),
    )  # fmt: skip
    best = compare_at_half(rows, ["bottom", "symmetric"], ["top"])
    # 0.89 against (0.71 + 0.85)/2; each side's seeds are 0.02 apart: Welch's t with 2 degrees.
    assert best.value == pytest.approx(11.0)
    half_width = 4.302653 * math.sqrt(2 * (0.02**2 / 2) / 2) * 100
    assert (best.low, best.high) == pytest.approx((11 - half_width, 11 + half_width))
    assert compare_at_half(rows, ["bottom"], ["top"]).value == pytest.approx(18.0)
    assert compare_at_half(rows, ["top"], ["none"]).value == pytest.approx(2.0)


def test_an_encoder_with_one_strategy_is_not_compared_with_others() -> None:
    rows = table(
        by("top", 0.88), by("bottom", 0.70), by("top", 0.2, backbone="albert"),
        row(0, 0.9), row(0, 0.3, backbone="albert"),
    )  # fmt: skip
    assert compare_at_half(rows, ["bottom"], ["top"]).value == pytest.approx(18.0)
    assert compare_at_half(rows, ["top"], ["none"]).value == pytest.approx((2 + 10) / 2)
    with pytest.raises(UserError, match="half of its layers of top beside symmetric"):
        compare_at_half(rows, ["symmetric"], ["top"])


def test_the_verdicts_and_what_was_fine_tuned_before() -> None:
    rows = [row(0, 0.9), row(0, 0.92, seed=1), by("top", 0.88), by("top", 0.90, 1)]
    none = INFERENCE_TIMES.empty_table()
    verdicts = judge_dropping(table(*rows), none, ("top", "bottom"), "here")
    assert [v.outcome for v in verdicts] == [
        "no answer", "no answer", "not settled", "no answer",
    ]  # fmt: skip
    rows += [again(0.88), again(0.90, 1)]
    assert with_dropping(table(*rows))["dropping"].to_pylist()[-1] == "top, fine-tuned before"
    verdicts = judge_dropping(table(*rows), none, ("top", "bottom"), "here")
    (comparable,) = (v for v in verdicts if v.source == "Layer dropping, Table 7")
    assert comparable.value == pytest.approx(0.0)


def test_where_all_models_start_fine_tuned_none_is_said_to() -> None:
    base = row(0, 0.9) | {"trial_json": Trial(warm_start="/folder").to_json()}
    assert with_dropping(table(base, again(0.8)))["dropping"].to_pylist() == ["none", "top"]


def test_a_threshold_is_a_strategy_of_its_own() -> None:
    rows = table(
        row(0, 0.9), by("contribution", 0.8, dropped=4), above(0.95, 4, 0.7), above(0.9, 6, 0.6)
    )
    losses = {(r["strategy"], r["layers_dropped"]): r["loss"] for r in layer_losses(rows).to_pylist()}  # fmt: skip # noqa: E501
    assert losses == pytest.approx({
        ("none", 0): 0.0, ("contribution", 4): 10.0, ("contribution > 0.95", 4): 20.0,
        ("contribution > 0.9", 6): 30.0,
    })  # fmt: skip


def test_losses_are_tested_with_the_first_seed_that_both_have() -> None:
    rows = table(row(0, 0.9), row(0, 0.9, seed=1), by("top", 0.8, 1), by("bottom", 0.9, 7))
    # Rows 1, 3, ... verify: seven that only the undropped model of seed 1 gets right.
    wrong = {"top-1": set(range(1, 15, 2)), "0-0": set(range(100))}
    losses = layer_losses(rows, lambda run: predictions(wrong.get(run, set())), {("b", 12): 2.0, ("b", 6): 0.8})  # fmt: skip # noqa: E501
    by_strategy = {r["strategy"]: r for r in losses.to_pylist()}
    top = by_strategy["top"]
    assert (top["p_value"], top["p_seed"], top["significant"]) == (2 / 2**7, 1, True)
    assert by_strategy["bottom"]["p_value"] is None  # no undropped model of seed 7
    assert by_strategy["none"]["p_value"] is None
    assert top["time_saved"] == pytest.approx(0.6)  # 1 − 0.8/2, not the trials' latency
    (view,) = layer_text.losses_tables(losses)
    assert "top 10.00*" in shown(view)
    line, *_ = layer_text.describe_losses(losses)
    assert "both of seed 1" in line
    assert not any("McNemar" in text for text in layer_text.describe_losses(layer_losses(rows)))


def test_strategies_that_drop_the_same_half_are_named() -> None:
    half = list(range(1, 7))
    rows = table(
        row(0, 0.9), by("top", 0.8), by("bottom", 0.7, dropped_layers=half),
        by("variance", 0.7, dropped_layers=half), by("variance", 0.9, dropped=2),
    )  # fmt: skip
    assert layer_text.describe_losses(layer_losses(rows)) == [
        "b: bottom, variance drop the same half of the layers"
    ]


def test_the_papers_losses_stand_below_ours() -> None:
    about = {"task": "sst2", "backbone": "/folder/bert-base-uncased"}
    rows = table(row(0, 0.92) | about, by("top", 0.90) | about, by("top", 0.91, dropped=2) | about)
    losses = layer_losses(rows)
    (view,) = layer_text.losses_tables(losses)
    assert shown(view)[2:] == [
        "sst2, undropped 92.00", "top 1.00 2.00", "in the paper 0.23 2.18",
    ]  # fmt: skip
    savings, rivals = layer_text.savings_tables(losses, INFERENCE_TIMES.empty_table())
    lines = shown(savings)
    # Of 110 parameters 42 went, and the speed is by layers left; Table 3 has it rounded.
    assert "bert-base-uncased 6 of 12 2.00 38% 2.00× 50%" in lines
    assert "paper: bert-base-uncased 6 of 12 2.91 40% 1.94× 50%" in lines
    assert any("bert-base-uncased dropped 90.00" in line for line in shown(rivals))
    assert any("dropped, paper 90.25 81.13" in line for line in shown(rivals))


def test_other_encoders_stand_beside_bert_without_the_same_share() -> None:
    losses = layer_losses(table(row(0, 0.9), by("top", 0.8), by("top", 0.8, dropped=3)))
    savings, *more = layer_text.savings_tables(losses, INFERENCE_TIMES.empty_table())
    assert more == []
    lines = shown(savings)
    assert lines[-1] == "paper: bert-base-uncased 6 of 12 2.91 40% 1.94× 50%"
    assert not any(line.startswith("paper: bert-base-uncased 3") for line in lines)


def counted(*points: tuple[int, int, float, float], thresholds: Any = (1.0, 3.0)) -> Any:
    """(layers dropped, seed, metric for selection, for verification) and the counts."""
    rows = table(*(row(k, 0.9, (chosen, other), seed=s) for k, s, chosen, other in points))
    return rows, layer_counts(rows, thresholds)


def test_counts_are_judged_by_what_they_lose_beyond_the_threshold() -> None:
    rows, counts = counted(
        (0, 0, 0.90, 0.90), (0, 1, 0.90, 0.92), (3, 0, 0.895, 0.88), (3, 1, 0.895, 0.90),
        (6, 0, 0.875, 0.88), (6, 1, 0.875, 0.88),
    )  # fmt: skip
    assert counts["layers_dropped"].to_pylist() == [3, 6]
    # Seed 0 loses 2 − 1 and 2 − 3, seed 1 loses 2 − 1 and 4 − 3: means of 0 and 1.
    excess = estimate_excess(rows, counts)
    assert excess.value == pytest.approx(0.5)
    assert excess.count == 2
    assert excess.high == pytest.approx(0.5 + 12.7062 * 0.5, rel=1e-4)
    assert judge_counts(rows, counts, "here").outcome == "not settled"
    # On the mean 3 layers lose 2 points, and 6 lose 3.
    assert describe_carried(counts) == (
        "1 of 2 counts above 0 are within their threshold on the other half too; in the paper 37 "
        "of 45"
    )


def test_one_seed_has_no_interval_and_no_count_no_answer() -> None:
    rows, counts = counted((0, 0, 0.90, 0.90), (3, 0, 0.895, 0.88))
    excess = estimate_excess(rows, counts)
    # At both thresholds 3 layers, which lose 2 points.
    assert (excess.value, excess.low) == (pytest.approx((1 - 1) / 2), None)
    none = pa.Table.from_pylist([], schema=counts.schema)
    assert judge_counts(rows, none, "here").outcome == "no answer"
    assert pytest.approx(-0.59) == CARRIED.published


def test_counts_of_no_layers_are_no_evidence() -> None:
    both = ((0, 0, 0.90, 0.90), (0, 1, 0.90, 0.90), (3, 0, 0.885, 0.89), (3, 1, 0.885, 0.87))
    rows, counts = counted(*both)
    assert counts["layers_dropped"].to_pylist() == [0, 3]  # 3 layers lose 1.5 points
    # At 3 points seed 0 loses 1, seed 1 loses 3: the 0 layers at 1 point would pull the mean down.
    assert estimate_excess(rows, counts).value == pytest.approx(-1.0)
    assert describe_carried(counts).startswith("1 of 1 counts above 0")
    rows, counts = counted(*both, thresholds=(1.0,))
    verdict = judge_counts(rows, counts, "here")
    assert (verdict.outcome, verdict.value) == ("no answer", None)


def test_a_threshold_that_no_layer_exceeds_says_so() -> None:
    rows = table(row(0, 0.9), by("top", 0.8), above(0.99, 0, 0.9))
    (view,) = layer_text.losses_tables(layer_losses(rows))
    assert shown(view)[2:] == ["tense, undropped 90.00", "contribution > 0.99: none", "top 10.00"]
