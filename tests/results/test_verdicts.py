"""Estimates with intervals by hand, and verdicts that are never stronger than those."""

import json
import math

import pytest
from scipy.stats import t

from bermo_ray.errors import UserError
from bermo_ray.results.arm_text import describe_verdicts, verdicts_markdown
from bermo_ray.results.verdicts import (
    VERDICTS,
    Claim,
    Estimate,
    Outcome,
    compare_by_seed,
    compare_means,
    compare_ratio,
    compare_shares,
    dump_verdicts,
    estimate_share,
    judge,
    parse_verdicts,
    verdicts_table,
)
from tests.support.result_rows import result_table

MORE = Claim("B is better", "Paper, Table 1", "B is better by", published=2.5)


def test_a_difference_of_means_has_welchs_interval() -> None:
    found = compare_means({0: 0.5, 1: 0.6, 2: 0.7, 9: 0.0}, {0: 0.6, 1: 0.8, 2: 1.0}, 100)
    # Variances 0.01 and 0.04 of three each; degrees (0.05/3)² / ((0.01/3)²/2 + (0.04/3)²/2).
    degrees = 0.05**2 / (0.01**2 / 2 + 0.04**2 / 2)
    half_width = 100 * t.ppf(0.975, degrees) * math.sqrt(0.05 / 3)
    assert found.value == pytest.approx(20)
    assert (found.low, found.high) == pytest.approx((20 - half_width, 20 + half_width))
    assert found.count == 3  # seed 9 is of one arm alone


def test_swapping_arms_gives_the_reciprocal_ratio() -> None:
    first, second = {0: 1.0, 1: 2.0}, {0: 4.0, 1: 4.0}
    there, back = compare_ratio(first, second), compare_ratio(second, first)
    assert there.value == pytest.approx(4 / math.sqrt(2))
    assert there.low is not None
    assert back.high is not None
    assert back.value == pytest.approx(1 / there.value)
    assert back.high == pytest.approx(1 / there.low)
    with pytest.raises(UserError, match="^ratio: got a value that is not positive"):
        compare_ratio({0: 0.0}, {0: 1.0})


def test_shares_have_exact_and_newcombes_intervals() -> None:
    none = estimate_share(0, 10)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(1 - 0.025**0.1)  # Clopper and Pearson at zero
    # Newcombe (1998), Table II, comparison (a): 56 of 70 and 48 of 80, 0.2000 (0.0524, 0.3339).
    found = compare_shares((48, 80), (56, 70))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    with pytest.raises(UserError, match="no cases"):
        estimate_share(0, 0)


def test_arms_without_a_common_seed_are_one_line() -> None:
    with pytest.raises(UserError) as caught:
        compare_means({0: 1.0, 1: 1.0}, {2: 1.0})
    assert caught.value.problems == (
        "seeds: of the first arm completed 0, 1, of the second 2: none in common to compare by",
    )
    verdict = judge(MORE, "here", lambda: compare_means({0: 1.0}, {}))
    assert verdict.outcome is Outcome.NO_ANSWER
    assert verdict.sentence.startswith("here: no answer: seeds: of the first arm completed 0")
    assert (verdict.value, verdict.low, verdict.count) == (None, None, 0)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.1, 3.0, Outcome.AGREES),
        (-3.0, -0.1, Outcome.CONTRADICTS),
        (-0.1, 3.0, Outcome.NOT_SETTLED),
        (0.0, 3.0, Outcome.NOT_SETTLED),
        (None, None, Outcome.NOT_SETTLED),
    ],
)
def test_a_claim_of_more_needs_its_interval(
    low: float | None, high: float | None, outcome: Outcome
) -> None:
    assert judge(MORE, "here", lambda: Estimate(1.0, low, high, 3)).outcome is outcome
    less = Claim("B is worse", "Paper", "B is better by", expects="less")
    mirrored = {Outcome.AGREES: Outcome.CONTRADICTS, Outcome.CONTRADICTS: Outcome.AGREES}
    expected = mirrored.get(outcome, outcome)
    assert judge(less, "here", lambda: Estimate(1.0, low, high, 3)).outcome is expected


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (-0.9, 1.0, Outcome.AGREES),
        (-0.9, 1.1, Outcome.NOT_SETTLED),
        (1.1, 2.0, Outcome.CONTRADICTS),
        (-5.0, 5.0, Outcome.NOT_SETTLED),
    ],
)
def test_a_claim_of_no_difference_needs_a_margin(low: float, high: float, outcome: Outcome) -> None:
    same = Claim("the same", "Paper", "B is better by", expects="same", margin=1.0)
    assert judge(same, "here", lambda: Estimate(0.0, low, high, 3)).outcome is outcome
    with pytest.raises(ValueError, match="names a margin"):
        Claim("the same", "Paper", "B is better by", expects="same")


def test_the_sentence_says_number_interval_and_seeds() -> None:
    claim = Claim("faster", "BERMo, Figure 5", "BERMo needs", "×", 0.6, "less", 1.0)
    verdict = judge(claim, "tense on embedded", lambda: Estimate(0.8, 0.6, 1.1, 5))
    assert verdict.sentence == (
        "tense on embedded: BERMo needs 0.80× (95 % interval 0.60 to 1.10, 5 seeds): not settled"
    )
    one = judge(claim, "here", lambda: Estimate(0.8, None, None, 1))
    assert one.sentence == "here: BERMo needs 0.80× (1 seed, so no interval): not settled"
    assert describe_verdicts([verdict])[1] == "         BERMo, Figure 5: faster (0.60×)"
    text = verdicts_markdown([verdict])
    assert "| faster (BERMo, Figure 5) | 0.60× | 0.80× (0.60 to 1.10), n = 5 |" in text


def test_verdicts_survive_json_and_arrow() -> None:
    verdicts = [
        judge(MORE, "here", lambda: Estimate(1.0, 0.5, 1.5, 3)),
        judge(MORE, "there", lambda: compare_means({}, {})),
    ]
    assert parse_verdicts(dump_verdicts(verdicts)) == verdicts
    assert json.loads(dump_verdicts(verdicts))[0]["outcome"] == "agrees"
    table = verdicts_table(verdicts)
    assert table.schema == VERDICTS
    assert table["outcome"].to_pylist() == ["agrees", "no answer"]


def test_arms_are_compared_over_tasks_that_every_seed_has() -> None:
    def row(fusion: str, task: str, seed: int, metric: float, status: str = "completed") -> dict:  # type: ignore[type-arg]
        return {
            "fusion": fusion, "task": task, "backbone": "b", "seed": seed, "status": status,
            "metric": metric,
        }  # fmt: skip

    table = result_table(
        row("last", "x", 0, 0.5), row("last", "y", 0, 0.7),
        row("last", "x", 1, 0.6), row("last", "y", 1, 0.8),
        row("bermo", "x", 0, 0.6), row("bermo", "y", 0, 0.8),
        row("bermo", "x", 1, 0.9), row("bermo", "y", 1, 0.1, "diverged"),
    )  # fmt: skip
    found = compare_by_seed(table, "fusion", "last", "bermo")
    assert found.value == pytest.approx(10.0)  # of seed 0 alone: 0.7 − 0.6
    assert (found.low, found.count) == (None, 1)
    with pytest.raises(UserError, match="^fusion: no trial with dwatt, so there is nothing"):
        compare_by_seed(table, "fusion", "last", "dwatt")
