"""Single changes against a default, with intervals for several comparisons; by hand."""

import math
from typing import Any

import pyarrow as pa
import pytest
from scipy.stats import t as student

from bermo_ray.results.ablation import (
    CHANGES,
    changes_table,
    compare_changes,
    corrected_confidence,
    drawn_changes,
    judge_changes,
)
from bermo_ray.results.verdicts import Claim
from tests.support.result_rows import result_table

MATTERS = Claim("a change matters", source="nobody", quantity="")
DEFAULT, PLAIN = "default", "last"


def trials(**metrics: tuple[float | None, ...]) -> pa.Table:
    """Of each change a metric for each seed; None where it diverged."""
    rows: list[dict[str, Any]] = [
        {"task": "t", "backbone": "b", "seed": seed, "metric": metric,
         "status": "diverged" if metric is None else "completed"}
        for values in metrics.values()
        for seed, metric in enumerate(values)
    ]  # fmt: skip
    names = [name for name, values in metrics.items() for _ in values]
    return result_table(*rows).append_column("change", pa.array(names))


def test_the_interval_of_k_changes_is_wider() -> None:
    assert corrected_confidence(1) == 0.95
    assert corrected_confidence(4) == pytest.approx(0.9875)
    table = trials(a=(0.90, 0.92), default=(0.80, 0.82), b=(0.81, 0.83), last=(0.50, 0.52))
    changes = compare_changes(table, DEFAULT, [PLAIN])
    assert changes.schema.equals(CHANGES)
    default, a, b, last = changes.to_pylist()
    assert [row["kind"] for row in (default, a, b, last)] == [
        "default", "change", "change", "reference",
    ]  # fmt: skip
    assert (default["difference"], default["metric"]) == (None, pytest.approx(0.81))
    # Of two changes: 97.5 %, two degrees of freedom, standard error √(2 · 0.0002 / 2).
    half = student.ppf(1 - 0.0125, 2) * math.sqrt(0.0002)
    assert (a["low"], a["high"]) == (pytest.approx(0.1 - half), pytest.approx(0.1 + half))
    assert a["confidence"] == b["confidence"] == pytest.approx(0.975)
    assert [row["settled"] for row in (default, a, b, last)] == [False, True, False, False]
    assert last["low"] < last["high"] < 0  # far off, yet no change of the default


def test_what_95_percent_would_settle_several_comparisons_do_not() -> None:
    # ±4.303 · 0.01414 = 0.061 at 95 %; with ten changes 14.09 · 0.01414 = 0.199.
    few = trials(default=(0.80, 0.82), a=(0.90, 0.92))
    assert compare_changes(few, DEFAULT).to_pylist()[1]["settled"]
    others = {f"c{i}": (0.80, 0.82) for i in range(9)}
    many = trials(default=(0.80, 0.82), a=(0.90, 0.92), **others)
    row = compare_changes(many, DEFAULT).to_pylist()[1]
    assert row["confidence"] == pytest.approx(0.995)
    assert not row["settled"]


def test_each_settled_change_has_a_verdict_which_says_its_side() -> None:
    table = trials(
        default=(0.80, 0.81, 0.80), good=(0.90, 0.91, 0.90), bad=(0.60, 0.61, 0.60),
        same=(0.80, 0.81, 0.81),
    )  # fmt: skip
    good, bad = judge_changes(table, compare_changes(table, DEFAULT), MATTERS, "here")
    assert (good.value, bad.value) == (pytest.approx(10.0), pytest.approx(20.0))
    assert 0 < bad.low < 20 < bad.high
    assert (good.outcome, bad.outcome) == ("agrees", "agrees")
    assert bad.quantity == "of 3 single changes bad is worse than the default by"
    assert "(98.3 % interval " in bad.sentence


def test_where_none_is_settled_the_clearest_is_judged() -> None:
    table = trials(default=(0.80, 0.90), wild=(0.60, 0.98), calm=(0.88, 0.90), lost=(None, None))
    changes = compare_changes(table, DEFAULT)
    (verdict,) = judge_changes(table, changes, MATTERS, "here")
    assert (
        verdict.quantity == "of 3 single changes the clearest, calm, is better than the default by"
    )
    assert verdict.outcome == "not settled"
    lost = changes.to_pylist()[-1]
    assert (lost["diverged"], lost["metric"], lost["difference"], lost["settled"]) == (
        2, None, None, False,
    )  # fmt: skip


def test_one_seed_has_no_interval_and_nothing_in_common_no_answer() -> None:
    table = trials(default=(0.8,), a=(0.9,), b=(0.85,))
    (verdict,) = judge_changes(table, compare_changes(table, DEFAULT), MATTERS, "here")
    assert "the clearest, a, is better" in verdict.quantity
    assert (verdict.low, verdict.outcome) == (None, "not settled")
    lost = trials(default=(None,), a=(0.9,))
    (verdict,) = judge_changes(lost, compare_changes(lost, DEFAULT), MATTERS, "here")
    assert verdict.outcome == "no answer"
    assert verdict.sentence.startswith("here: no answer: none of 1 single changes completed with")


def test_the_figure_has_differences_and_the_table_choices_and_values() -> None:
    table = trials(**{"default": (0.80, 0.82), "norm: none": (0.90, 0.92), "last": (0.5, 0.5)})
    changes = compare_changes(table, DEFAULT, [PLAIN])
    rows = drawn_changes(changes).to_pylist()
    assert [row["mean"] for row in rows] == pytest.approx([0.0, 0.1, -0.31])
    assert rows[1]["interval"] == pytest.approx(4.303 * math.sqrt(0.0002), rel=1e-3)
    view = changes_table("Metric", changes)
    assert [list(column.cells)[1] for column in view.columns] == [
        "norm", "none", "91.00", "+10.00", "3.92 to 16.08", "settled",
    ]  # fmt: skip
