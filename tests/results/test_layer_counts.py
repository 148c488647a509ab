"""Losses, counts and tests of significance, by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import SCHEMA, figures, layer_counts, layer_losses, mcnemar
from bermo_ray.results.layer_counts import speed_only
from bermo_ray.results.mixes import mixes
from bermo_ray.results.significance import right
from bermo_ray.tasks import registry
from bermo_ray.tasks.task import halves
from bermo_ray.trial import LayerDrop, Pruning, Trial


def row(count: int, metric: float, halves: tuple[float, float] = (0, 0), **more: Any) -> dict[str, Any]:  # fmt: skip # noqa: E501
    drop = LayerDrop(strategy="top", count=count) if count else None
    seed = more.get("seed", 0)
    trial = Trial(layer_drop=drop, seed=seed, pruning=more.pop("pruning", None))
    return {
        "task": "tense", "backbone": "b", "status": "completed",
        "strategy": "top" if count else None, "count": count, "layers": 12 - count,
        "dropped": json.dumps(list(range(13 - count, 13))),
        "metric": metric, "first_half": halves[0], "second_half": halves[1], "seed": seed,
        "parameters": 110 - 7 * count, "rows_per_second": 10.0 / (12 - count), "method": "dense",
        "latency": 0.1 * (12 - count), "run_id": f"{count}-{seed}", "trial": trial.to_json(),
        "recipe": trial.recipe, "remaining": (12 - count) / 12, "fusion": "last",
    } | more  # fmt: skip


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def test_losses_and_savings_against_the_whole_model() -> None:
    found = layer_losses(table(
        row(0, 0.90), row(0, 0.94, seed=1), row(6, 0.90), row(6, 0.88, seed=1),
        row(4, 0.5, status="diverged"), row(2, 0.9, status="failed"),
    )).to_pylist()  # fmt: skip
    whole, four, six = found
    assert (whole["strategy"], whole["count"], whole["seeds"]) == ("none", 0, 2)
    assert whole["metric"] == pytest.approx(0.92)
    assert (six["count"], six["seeds"], six["parameters"]) == (6, 2, 68)
    assert six["loss"] == pytest.approx(3.0)  # 100·(0.92 − 0.89)
    assert six["saved"] == pytest.approx(42 / 110)
    assert six["train_speedup"] == pytest.approx(2.0)
    assert six["infer_speedup"] == pytest.approx(2.0)
    assert four["loss"] == pytest.approx(42.0)
    assert layer_losses(table(row(2, 0.9))).num_rows == 0


def test_shared_layers_are_said_to_be_faster_not_smaller() -> None:
    same = {"parameters": 12}
    losses = layer_losses(table(row(0, 0.9, **same), row(6, 0.9, **same)))
    assert losses["infer_speedup"].to_pylist()[1] == pytest.approx(2.0)
    assert speed_only(losses) == ["b"]
    assert speed_only(layer_losses(table(row(0, 0.9), row(6, 0.9)))) == []


def answers(wrong: set[int]) -> pa.Table:
    predicted = [int(i in wrong) for i in range(100)]
    return pa.table({"row": range(100), "target": [0] * 100, "predicted": predicted})


def test_counts_are_found_on_one_half_and_verified_on_the_other() -> None:
    rows = table(
        row(0, 0.9, (0.90, 0.91)), row(3, 0.9, (0.895, 0.90)),
        row(4, 0.9, (0.885, 0.86)), row(6, 0.9, (0.87, 0.80)),
    )  # fmt: skip
    second = halves(100)[1]
    given = {"0-0": set(), "3-0": {int(second[0])}, "4-0": set(map(int, second[:9])), "6-0": set()}
    found = layer_counts(rows, (1.0, 2.0, 5.0), lambda run: answers(given[run])).to_pylist()
    assert [r["count"] for r in found] == [3, 4, 6]
    assert [round(r["loss_first"], 6) for r in found] == [0.5, 1.5, 3.0]
    assert [round(r["loss_second"], 6) for r in found] == [1.0, 5.0, 11.0]
    # One against none: p = 1; nine against none: 2·(1/2)^9; no difference: 1.
    assert [r["p_value"] for r in found] == pytest.approx([1.0, 2 * 0.5**9, 1.0])
    assert [r["significant"] for r in found] == [False, True, False]
    assert {(r["trainings"], r["grid"], r["monotone"]) for r in found} == {(4, 12, True)}
    assert found[2]["dropped"] == "[7, 8, 9, 10, 11, 12]"
    assert [r["layers"] for r in found] == [9, 8, 6]


def test_nothing_to_spare_and_nothing_to_lose() -> None:
    none = layer_counts(table(row(0, 0.9, (0.9, 0.9)), row(6, 0.5, (0.5, 0.5))), (1.0,)).to_pylist()
    assert (none[0]["count"], none[0]["loss_second"], none[0]["p_value"]) == (0, 0.0, None)
    chance = table(row(0, 0.5, (0.5, 0.5), status="diverged"), row(6, 0.5, (0.5, 0.5)))
    assert layer_counts(chance, (1.0,)).num_rows == 0
    bumpy = table(row(0, 0.9, (0.9, 0.9)), row(3, 0.9, (0.8, 0.8)), row(6, 0.9, (0.895, 0.9)))
    (bump,) = layer_counts(bumpy, (1.0,)).to_pylist()
    assert (bump["count"], bump["monotone"]) == (6, False)


def test_a_count_that_lacks_a_seed_is_none() -> None:
    rows = [row(k, 0.9, (0.9, 0.9), seed=s) for k in (0, 3) for s in (0, 1)]
    lacking = [*rows, row(6, 0.9, (0.9, 0.9)), row(6, 0.9, (0.9, 0.9), seed=1, status="failed")]
    (found,) = layer_counts(table(*lacking), (1.0,)).to_pylist()
    assert found["count"] == 3
    without = [rows[0], row(0, 0.9, seed=1, status="failed"), *rows[2:]]
    assert layer_counts(table(*without), (1.0,)).num_rows == 0


def test_counts_from_a_model_that_had_lost_layers_before() -> None:
    """A trial started from one without its top layer: two more are two, not three."""
    whole = row(1, 0.9, (0.9, 0.9)) | {"strategy": None}
    found = layer_losses(table(whole, row(3, 0.88, (0.88, 0.88)))).to_pylist()
    assert [(r["strategy"], r["count"]) for r in found] == [("none", 0), ("top", 2)]
    assert found[1]["loss"] == pytest.approx(2.0)


def test_nothing_usable_is_no_error(tmp_path: Path) -> None:
    none = table(row(0, 0.5, status="failed"))
    assert mixes(none, [0.5]).num_rows == 0
    losses = layer_losses(none)
    assert losses.num_rows == 0
    assert figures.strategies_figure(losses, tmp_path / "f.png").is_file()
    counts = layer_counts(none, (1.0,))
    assert figures.counts_figure(counts, tmp_path / "c.png").is_file()
    assert figures.mixes_figure(mixes(none, [0.5]), "accuracy", tmp_path / "m.png").is_file()


def test_mcnemar_by_hand() -> None:
    def right_or_wrong(text: str) -> np.ndarray:
        return np.array([c == "1" for c in text])

    same = mcnemar(right_or_wrong("1100"), right_or_wrong("1100"))
    assert (same.only_first, same.only_second, same.p_value) == (0, 0, 1.0)
    found = mcnemar(right_or_wrong("1111110"), right_or_wrong("0000001"))
    # Six against one of seven: 2·(C(7,0) + C(7,1))/2^7.
    assert (found.only_first, found.only_second) == (6, 1)
    assert found.p_value == pytest.approx(2 * (1 + 7) / 2**7)
    with pytest.raises(UserError, match="2 examples against 3"):
        mcnemar(right_or_wrong("10"), right_or_wrong("101"))


def test_what_is_right_in_each_kind_of_task() -> None:
    def of(task: str, target: list[Any], predicted: list[Any]) -> Any:
        found = pa.table({"target": target, "predicted": predicted})
        return right(found, registry.get(task))

    assert of("tense", [0, 1, 1], [0, 0, 1]).tolist() == [True, False, True]
    assert of("entities", [[0, 1], [2]], [[0, 2], [2]]).tolist() == [True, False, True]
    assert of("answer_span", [["the cat", "cat"], ["dog"]], ["Cat", "a cow"]).tolist() == [True, False]  # fmt: skip # noqa: E501
    assert of("similarity", [0.5], [0.5]) is None


def test_mixes_of_a_size_are_put_together_and_compared() -> None:
    to = {k: Pruning(target=0.5 * 12 / (12 - k), final_warmup=2) for k in (0, 4)}
    rows = table(
        row(0, 0.90), row(6, 0.80, remaining=0.5),
        row(0, 0.85, pruning=to[0], remaining=0.51, run_id="p0"),
        row(4, 0.87, pruning=to[4], remaining=0.51, run_id="p4"),
        row(4, 0.91, pruning=to[4], remaining=0.51, run_id="p4s", seed=1),
    )  # fmt: skip
    found = mixes(rows, [0.5], lambda run: answers({1} if run == "p4" else set())).to_pylist()
    assert [(r["size"], r["count"]) for r in found] == [(1.0, 0), (0.5, 0), (0.5, 4), (0.5, 6)]
    assert [r["best"] for r in found] == [True, False, True, False]
    assert [r["seeds"] for r in found] == [1, 1, 2, 1]
    assert found[2]["metric"] == pytest.approx(0.89)
    assert found[2]["metric_sd"] == pytest.approx(0.04 / 2**0.5)
    assert [r["p_value"] for r in found] == [None, 1.0, None, 1.0]
    # Pruned alone is as large as 4 dropped, worse and slower: the only one beaten.
    assert [r["on_frontier"] for r in found] == [True, False, True, True]
    assert [r["latency"] for r in found] == pytest.approx([1.2, 1.2, 0.8, 0.6])
