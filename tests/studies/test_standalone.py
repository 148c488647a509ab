"""Fine-tuning without pruning: its trials, and its verdicts on made-up results."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from bermo_ray.record import Status
from bermo_ray.results import published_values
from bermo_ray.search.recommended import recommended_trial
from tests.search.test_paper_settings import appendix, same_settings
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

standalone = load_script("standalone")


def row(task: str, fusion: str, seed: int, metric: float | None, **others: float) -> dict[str, Any]:
    status = Status.DIVERGED if metric is None else Status.COMPLETED
    return {
        "task": task, "backbone": "embedded", "fusion": fusion, "seed": seed, "metric": metric,
        "status": str(status), "metric_name": "accuracy",
        "other_metrics": list(others.items()),
    }  # fmt: skip


def test_default_trials_are_dense_and_those_of_probing() -> None:
    trials = standalone.plan(standalone.Options()).trials
    assert len(trials) == 3 * 2 * 3
    assert {t.data.task for t in trials} == {"tense", "entailment", "answer_span"}
    assert {t.fusion.name for t in trials} == {"last", "bermo"}
    assert {t.seed for t in trials} == {0, 1, 2}
    assert all(t.pruning is None for t in trials)
    start = recommended_trial("dense", "embedded")
    expected = {
        start.replace(data={"task": t.data.task}, fusion=t.fusion.name, seed=t.seed).id
        for t in trials
    }
    assert {t.id for t in trials} == expected
    probing = load_script("probing")
    shared = {t.id for t in probing.plan(probing.Options()).trials} & expected
    assert len(shared) == 2 * 3  # tense


def test_papers_trials_are_those_of_a_1_1() -> None:
    trials = standalone.plan(standalone.Options(paper=True)).trials
    assert [(t.data.task, t.fusion.name) for t in trials] == [
        (task, fusion) for task in ("sst2", "mnli", "qqp", "squad") for fusion in ("last", "bermo")
    ]
    for trial in trials:
        same_settings(trial, appendix("A.1.1", trial.data.task, trial.fusion.name))
        assert trial.data.whole_dev
        assert (trial.seed, trial.backbone, trial.pruning) == (0, "bert-base-uncased", None)


def test_differences_are_those_of_table_2() -> None:
    told = standalone.published_metrics()
    for ours, asked in standalone.TASKS.items():
        name = "span_f1" if asked == "squad" else "accuracy"
        last, bermo = (told[asked, name, arm] for arm in ("last", "bermo"))
        assert bermo - last == pytest.approx(standalone.DIFFERENCES[asked])
        assert told[ours, name, "bermo"] == bermo
    assert told["qqp", "f1", "last"] == 84.53
    assert told["mnli", "accuracy_mismatched", "bermo"] == 80.84
    assert len(published_values("bermo", "T2", ("task", "quantity", "fusion"))) == 12


def test_verdicts_of_each_task_and_of_their_mean(tmp_path: Path) -> None:
    values = {("tense", "last"): (0.90, 0.92), ("tense", "bermo"): (0.92, 0.94)}
    values |= {("entailment", "last"): (0.70, 0.702), ("entailment", "bermo"): (0.70, 0.702)}
    table = result_table(
        *(row(key[0], key[1], s, values[key][s]) for key in values for s in (0, 1))
    )
    options = standalone.Options(tasks=("tense", "entailment"))
    session = FakeSession(options, tmp_path, where="tense, entailment on embedded")
    standalone.report(session, table)
    assert session.tables["means"]["task"].to_pylist() == ["tense"] * 2 + ["entailment"] * 2
    assert session.tables["means"]["fusion"].to_pylist() == ["last", "bermo"] * 2
    tense, entailment, both = session.verdicts
    assert [v.value for v in session.verdicts] == pytest.approx([2.0, 0.0, 1.0])
    assert [v.where for v in session.verdicts] == [
        "tense on embedded",
        "entailment on embedded",
        "mean over tense, entailment on embedded",
    ]
    assert (tense.published, entailment.published) == (0.69, -0.54)
    assert both.published == pytest.approx(fmean([0.69, -0.54]))
    # Entailment: Welch's t of 2 degrees, 4.303 · 0.1 · √2 = 0.61 points, within one.
    assert (entailment.low, entailment.high) == (pytest.approx(-0.61, abs=0.01), pytest.approx(0.61, abs=0.01))  # fmt: skip # noqa: E501
    assert [v.outcome for v in session.verdicts] == ["not settled", "agrees", "not settled"]
    assert session.figure_files[0].is_file()
    out = session.printed()
    assert "91.00 ±12.71  93.00 ±12.71   91.74   92.43" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_other_metrics_of_table_2_are_lines_of_their_own(tmp_path: Path) -> None:
    rows = [row("mnli", arm, 0, 0.80, validation_mismatched=0.81) for arm in ("last", "bermo")]
    rows += [row("qqp", "last", 0, 0.88, f1=0.84), row("qqp", "bermo", 0, 0.87, f1=0.85)]
    session = FakeSession(standalone.Options(tasks=("mnli", "qqp")), tmp_path)
    standalone.report(session, result_table(*rows))
    means = {
        (r["task"], r["metric_name"], r["fusion"]): r["mean"]
        for r in session.tables["means"].to_pylist()
    }
    assert len(means) == 8
    assert means["mnli", "accuracy_mismatched", "last"] == 0.81
    assert (means["qqp", "f1", "last"], means["qqp", "f1", "bermo"]) == (0.84, 0.85)
    assert [v.outcome for v in session.verdicts] == ["not settled"] * 3  # one seed, no interval


def test_a_task_of_which_an_arm_diverged_has_no_answer(tmp_path: Path) -> None:
    table = result_table(row("tense", "last", 0, None), row("tense", "bermo", 0, 0.9))
    session = FakeSession(standalone.Options(tasks=("tense",)), tmp_path)
    standalone.report(session, table)
    (verdict,) = session.verdicts
    assert verdict.outcome == "no answer"
    assert verdict.sentence.startswith("tense on embedded: no answer")
    assert "none (1 div.)" in session.printed()
