"""Four ways of pruning: their trials, and the verdicts on made-up results."""

import math
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.results.published_pruning import (
    mean_difference,
    published_metrics,
    published_remaining,
)
from tests.search.test_paper_settings import PRUNING_TABLES, appendix, same_settings
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

script = load_script("pruning_methods")
METHODS = ["magnitude", "l0", "movement", "soft_movement"]


def row(fusion: str, seed: int, remaining: float, metric: float, **changes: Any) -> dict[str, Any]:
    return {
        "task": "tense", "backbone": "embedded", "fusion": fusion, "seed": seed,
        "status": "completed", "metric": metric, "remaining": remaining, "method": "l0",
        "metric_name": "accuracy", "multiplier": 30.0,
    } | changes  # fmt: skip


def report(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> FakeSession:
    session = FakeSession(script.Options(**options), tmp_path, where="tense on embedded")
    script.report(session, result_table(*rows))
    return session


def test_default_trials_are_every_method_and_fusion_with_three_seeds() -> None:
    trials = script.plan(script.Options()).trials
    assert [(t.seed, t.pruning.method, t.fusion.name) for t in trials] == [
        (seed, method, fusion)
        for seed in (0, 1, 2)
        for method in METHODS
        for fusion in ("last", "bermo")
    ]
    assert {t.data.task for t in trials} == {"tense"}
    stability = load_script("stability")
    movement = {t.id for t in trials if t.pruning.method == "movement"}
    assert movement <= {t.id for t in stability.plan(stability.Options()).trials}


def test_bermo_has_a_smaller_multiplier_than_bert_on_the_shipped_encoder() -> None:
    trials = script.plan(script.Options(methods=("l0", "soft_movement"), seeds=(0,))).trials
    assert [(t.fusion.name, t.pruning.multiplier) for t in trials] == [
        ("last", 30.0), ("bermo", 6.0), ("last", 80.0), ("bermo", 40.0),
    ]  # fmt: skip


def test_papers_trials_are_those_of_tables_7_to_10() -> None:
    trials = script.plan(script.Options(paper=True)).trials
    tables = dict(PRUNING_TABLES)
    assert len(trials) == 4 * 3 * 2
    assert {(t.seed, t.backbone) for t in trials} == {(0, "bert-base-uncased")}
    for trial in trials:
        settings = appendix(tables[trial.pruning.method], trial.data.task, trial.fusion.name)
        same_settings(trial, settings)


def test_one_point_can_be_asked_for() -> None:
    options = script.Options(
        methods=("l0",), fusions=("bermo",), seeds=(3,), learning_rate=1e-3,
        overrides=("pruning.multiplier=20",),
    )  # fmt: skip
    (trial,) = script.plan(options).trials
    assert (trial.pruning.multiplier, trial.optimizer.learning_rate, trial.seed) == (20, 1e-3, 3)
    with pytest.raises(UserError, match="only soft_movement and l0 have it"):
        script.plan(script.Options(methods=("magnitude",), overrides=("pruning.multiplier=20",)))


def test_tables_4_and_5_by_our_names() -> None:
    told, taught = published_metrics("T4"), published_metrics("T5")
    assert told["tense", "l0", "accuracy", "bermo"] == told["qqp", "l0", "accuracy", "bermo"]
    assert told["squad", "soft_movement", "span_f1", "bermo"] == 74.87
    assert told["mnli", "l0", "accuracy_mismatched", "last"] == 74.96
    # Swapped in print.
    assert taught["qqp", "movement", "accuracy", "last"] == 86.58
    assert taught["qqp", "movement", "f1", "last"] == 81.79
    assert len(told) == 4 * 2 * (5 + 2 + 2 + 2 + 1)  # the paper's five, and those of our tasks
    shares = published_remaining()
    assert shares["tense", "l0", "last"] / shares["tense", "l0", "bermo"] == pytest.approx(1.4)
    arms = (told, "last"), (told, "bermo")
    assert mean_difference(["mnli", "qqp"], "l0", *arms) == pytest.approx((-0.15 - 0.07) / 2)
    assert mean_difference(["qqp", "sst2"], "l0", *arms) is None


def test_weights_and_metrics_stand_side_by_side(tmp_path: Path) -> None:
    ours = {"last": [(0.2, 0.90), (0.4, 0.92)], "bermo": [(0.1, 0.88), (0.1, 0.90)]}
    rows = [
        row(arm, seed, *pair, multiplier={"last": 30.0, "bermo": 8.0}[arm])
        for arm, pairs in ours.items()
        for seed, pair in enumerate(pairs)
    ]
    session = report(tmp_path, *rows)
    metrics, weights = session.verdicts
    assert (metrics.value, metrics.published) == (pytest.approx(-2.0), pytest.approx(-0.07))
    assert metrics.outcome == "not settled"  # ±8.6 points by Welch's t
    # Geometric means: √(0.2 · 0.4) / 0.1; Student's t of one degree, as BERMo's do not vary.
    assert weights.value == pytest.approx(math.sqrt(8))
    assert math.log(weights.high) - math.log(weights.value) == pytest.approx(12.706 * math.log(2) / 2, rel=1e-3)  # fmt: skip # noqa: E501
    assert (weights.published, weights.outcome) == (1.40, "not settled")
    assert weights.quantity == (
        "with l0 pruning at λ 30 (last) and 8 (bermo), where bermo's metric is 2.00 points below "
        "last's, the weights of BERT over BERMo's are"
    )
    out = session.printed()
    assert "30.00 ±127.06  10.00 ±0.00    7.70    5.50" in out
    assert "91.00 ±12.71  89.00 ±12.71   85.85   85.78" in out
    assert all(len(line) <= 80 for line in out.split("verdict")[0].splitlines())
    kinds = {f"{name}.{kind}" for name in ("remaining", "metrics") for kind in ("png", "svg")}
    assert {file.name for file in tmp_path.iterdir()} == kinds


def test_the_same_multiplier_is_said_to_be_the_same_and_settles_the_ratio(tmp_path: Path) -> None:
    sizes = {"last": (0.20, 0.21, 0.20), "bermo": (0.10, 0.11, 0.10)}
    rows = [
        row(arm, seed, size, 0.9, method="soft_movement")
        for arm, pair in sizes.items()
        for seed, size in enumerate(pair)
    ]
    metrics, weights = report(tmp_path, *rows).verdicts
    assert (metrics.outcome, weights.outcome) == ("agrees", "agrees")
    assert "at the same λ (30), where bermo's metric is 0.00 points above" in weights.quantity
    assert weights.published == 1.29


def test_weights_are_judged_where_the_paper_claims_fewer(tmp_path: Path) -> None:
    rows = [
        row(arm, 0, 0.1, 0.8, task=task, method=method)
        for task in ("mnli", "qqp", "squad")
        for method in METHODS
        for arm in ("last", "bermo")
    ]
    verdicts = report(tmp_path, *rows, tasks=("mnli", "qqp", "squad")).verdicts
    assert [v.where for v in verdicts if v.unit == "×"] == ["qqp", "qqp"]
    assert len(verdicts) == 6
    assert {v.outcome for v in verdicts} == {"not settled"}  # of one seed


def test_an_arm_that_diverged_has_no_answer(tmp_path: Path) -> None:
    rows = [row("last", 0, 0.1, 0.5, status="diverged"), row("bermo", 0, 0.1, 0.9)]
    session = report(tmp_path, *rows)
    assert [v.outcome for v in session.verdicts] == ["no answer", "no answer"]
    assert "none (1 div.)" in session.printed()
