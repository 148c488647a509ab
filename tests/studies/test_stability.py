"""Ten seeds of pruning: their trials, and the verdicts on made-up results."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from bermo_ray.results.stability import count_diverged, measure_stability
from bermo_ray.search.recommended import recommended_trial
from tests.results.test_stability import runs
from tests.search.test_paper_settings import appendix, same_settings
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

stability = load_script("stability")
SEEDS = [9, 25, 39, 52, 59, 63, 77, 87, 91, 96]


def test_default_trials_are_ten_seeds_of_each_fusion() -> None:
    trials = stability.plan(stability.Options()).trials
    assert len(trials) == 20
    start = recommended_trial("movement", "embedded")
    assert start.pruning is not None
    assert start.pruning.schedule_ends == (1.0, 0.1)
    assert {t.id for t in trials} == {
        start.replace(fusion=fusion, seed=seed).id
        for fusion in ("last", "bermo")
        for seed in range(10)
    }


def test_papers_trials_are_those_of_table_6() -> None:
    trials = stability.plan(stability.Options(paper=True)).trials
    assert sorted((t.fusion.name, t.seed) for t in trials) == [
        (fusion, seed) for fusion in ("bermo", "last") for seed in SEEDS
    ]
    for trial in trials:
        same_settings(trial, appendix("T6", "sst2", trial.fusion.name))
        assert (trial.data.task, trial.backbone) == ("sst2", "bert-base-uncased")


def test_the_claims_numbers_follow_from_table_3() -> None:
    table = stability.published_runs()
    arms = {row["fusion"]: row for row in measure_stability(table, ("fusion",)).to_pylist()}
    assert {name: (row["diverged"], row["ended"]) for name, row in arms.items()} == {
        "last": (8, 10),
        "bermo": (0, 10),
    }
    assert arms["last"]["mean"] == pytest.approx(fmean([0.7985, 0.8222]))
    assert arms["last"]["deviation"] == pytest.approx(stdev([0.7985, 0.8222]))
    points = 100 * (arms["bermo"]["share"] - arms["last"]["share"])
    assert points == stability.FEWER_DIVERGE.published
    values: dict[Any, Any] = {
        (row["fusion"], row["seed"]): row["metric_reported"] for row in table.to_pylist()
    }
    better = [values["bermo", s] - values["last", s] for s in SEEDS if values["last", s]]
    assert len(better) == 2
    assert 100 * fmean(better) == pytest.approx(stability.BETTER.published)


def report(tmp_path: Path, options: Any, *arms: Any) -> FakeSession:
    rows = [row | {"metric_name": "accuracy"} for arm in arms for row in arm.to_pylist()]
    session = FakeSession(options, tmp_path, where="tense on embedded")
    stability.report(session, result_table(*rows))
    return session


def test_verdicts_of_divergence_and_of_the_seeds_that_both_complete(tmp_path: Path) -> None:
    last = runs("last", 0.80, 0.82, *["diverged"] * 8)
    bermo = runs("bermo", 0.86, 0.88, *[0.70] * 8)
    session = report(tmp_path, stability.Options(), last, bermo)
    fewer, better = session.verdicts
    assert fewer.value == pytest.approx(-80)
    assert (fewer.outcome, fewer.count) == ("agrees", 10)
    # Seeds 0 and 1 alone: what BERMo has where BERT diverges is no part of it.
    assert better.value == pytest.approx(6.0)
    assert better.count == 2
    rows = session.tables["stability"].to_pylist()
    assert [(r["fusion"], r["diverged"], r["ended"]) for r in rows] == [
        ("last", 8, 10),
        ("bermo", 0, 10),
    ]
    assert (tmp_path / "stability.png").is_file()


def test_each_seed_is_shown_and_the_papers_beside_it_where_it_is_the_same(tmp_path: Path) -> None:
    # Seeds 0 to 9, of which the paper has the last.
    ours = (runs(arm, "diverged", "failed", *[0.9] * 8) for arm in ("last", "bermo"))
    session = report(tmp_path, stability.Options(), *ours)
    lines = [line.split() for line in session.printed().splitlines()]
    texts = [" ".join(words) for words in lines]
    assert ["0", "diverges", "diverges"] in lines
    assert ["1", "failed", "failed"] in lines
    assert ["2", "90.00", "90.00"] in lines
    assert ["9", "90.00", "90.00", "79.85", "87.39"] in lines
    assert "diverged 1 of 9 1 of 9 8 of 10 0 of 10" in texts
    assert ["deviation", "0.00", "0.00", "1.68", "0.58"] in lines
    assert all(len(line) <= 80 for line in session.printed().splitlines())
    assert session.verdicts[0].outcome == "not settled"


def test_where_nothing_completes_there_is_still_a_share(tmp_path: Path) -> None:
    lost = [runs(arm, "diverged", "diverged") for arm in ("last", "bermo")]
    assert count_diverged(lost[0]) == (2, 2)
    fewer, better = report(tmp_path, stability.Options(), *lost).verdicts
    assert (fewer.value, fewer.outcome) == (0.0, "not settled")
    assert better.outcome == "no answer"
