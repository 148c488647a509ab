"""Pruning with and without a teacher: trials, and verdicts on made-up results."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.search.recommended import recommended_trial
from bermo_ray.trial import Trial
from tests.search.test_paper_settings import appendix, same_settings
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

script = load_script("distillation")


def make_plan(options: Any) -> tuple[list[Trial], list[Trial]]:
    """Trials without a teacher, and those with one."""
    checkpoints = {trial.id: f"/{trial.data.task}" for trial in script.teachers(options)}
    trials = script.plan(options, checkpoints).trials
    return (
        [t for t in trials if t.distillation is None],
        [t for t in trials if t.distillation is not None],
    )


def test_the_teacher_is_the_dense_bert_of_other_studies() -> None:
    (teacher,) = script.teachers(script.Options(seeds=(4, 5)))
    dense = recommended_trial("dense", "embedded").replace(seed=4)
    assert teacher.id == dense.id
    standalone = load_script("standalone")
    trials = standalone.plan(standalone.Options(seeds=(4, 5))).trials
    assert teacher.id in {t.id for t in trials}


def test_default_trials_differ_by_the_teacher_alone() -> None:
    alone, taught = make_plan(script.Options())
    methods = load_script("pruning_methods")
    movement = methods.plan(methods.Options(methods=("movement",))).trials
    assert [t.id for t in alone] == [t.id for t in movement]
    assert len(alone) == 2 * 3
    assert [t.replace(distillation=None).id for t in taught] == [t.id for t in alone]
    for trial in taught:
        assert trial.distillation is not None
        settings = trial.distillation.model_dump()
        assert settings == {
            "teacher": "/tense", "alpha_ce": 0.1, "alpha_kd": 0.9, "temperature": 2.0,
        }  # fmt: skip


def test_papers_trials_are_those_of_table_11() -> None:
    options = script.Options(paper=True)
    alone, taught = make_plan(options)
    assert len(alone) == len(taught) == 3 * 2
    for trial in taught:
        assert trial.distillation is not None
        settings = appendix("T11", trial.data.task, trial.fusion.name)
        del settings["distillation.teacher"]
        assert settings["distillation.alpha_kd"] == 0.9
        same_settings(trial, settings)
        assert trial.distillation.teacher == f"/{trial.data.task}"
    for teacher in script.teachers(options):
        assert (teacher.fusion.name, teacher.pruning) == ("last", None)
        same_settings(teacher, appendix("A.1.1", teacher.data.task, "last"))


def test_a_teacher_that_is_given_teaches_one_arm_alone(tmp_path: Path) -> None:
    options = script.Options(teacher=str(tmp_path), overrides=("distillation.temperature=3.0",))
    assert script.teachers(options) == []
    alone, taught = make_plan(options)
    assert len(alone) == len(taught) == 6
    assert {t.distillation.teacher for t in taught if t.distillation} == {str(tmp_path)}
    assert {t.distillation.temperature for t in taught if t.distillation} == {3.0}


def row(fusion: str, seed: int, metric: float, teacher: str | None) -> dict[str, Any]:
    trial = Trial(seed=seed)
    if teacher:
        trial = trial.replace(distillation={"teacher": teacher})
    return {
        "task": "tense", "backbone": "embedded", "fusion": fusion, "seed": seed,
        "method": "movement", "status": "completed", "metric": metric, "metric_name": "accuracy",
        "trial_json": trial.to_json(),
    }  # fmt: skip


def test_verdicts_on_what_a_teacher_gives_and_on_the_fusions_with_it(tmp_path: Path) -> None:
    metrics = {
        ("last", None): (0.80, 0.81, 0.80), ("last", "t"): (0.86, 0.87, 0.86),
        ("bermo", None): (0.85, 0.86, 0.80), ("bermo", "t"): (0.86, 0.87, 0.86),
    }  # fmt: skip
    rows = [
        row(fusion, seed, value, teacher)
        for (fusion, teacher), values in metrics.items()
        for seed, value in enumerate(values)
    ]
    session = FakeSession(script.Options(), tmp_path, where="tense on embedded")
    script.report(session, result_table(*rows))
    bert, bermo, comparable = session.verdicts
    assert (bert.value, bert.outcome) == (pytest.approx(6.0), "agrees")
    assert bert.published == pytest.approx(86.58 - 86.28)
    # 0.837 -> 0.863: ±7.2 points, since seed 2 is far below.
    assert (bermo.value, bermo.outcome) == (pytest.approx(8 / 3), "not settled")
    assert bermo.published == pytest.approx(86.53 - 86.02)
    assert (comparable.value, comparable.published) == (0.0, pytest.approx(-0.05))
    # Welch's t of 4 degrees: 2.776 · √(2 · 0.333 / 3) = 1.31 points, more than the margin.
    assert comparable.high == pytest.approx(1.309, abs=0.001)
    assert comparable.outcome == "not settled"
    out = session.printed()
    assert "last    80.33 ±1.43  86.33 ±1.43    86.28   86.58" in out
    assert all(len(line) <= 80 for line in out.split("verdict")[0].splitlines())
    assert session.figure_files[0].is_file()


def test_gains_of_the_paper_are_table_5_less_table_4(tmp_path: Path) -> None:
    tasks = ("mnli", "qqp", "squad")
    table = result_table(
        *(
            row(fusion, 0, 0.8, teacher) | {"task": task}
            for task in tasks
            for fusion in ("last", "bermo")
            for teacher in (None, "t")
        )
    )
    session = FakeSession(script.Options(paper=True), tmp_path)
    script.report(session, table)
    published = [verdict.published for verdict in session.verdicts]
    # MNLI +0.31 and +0.79, QQP +0.30 and +0.51, SQuAD +1.70 and +2.57.
    gains = [(0.31 + 0.30 + 1.70) / 3, (0.79 + 0.51 + 2.57) / 3]
    assert published == pytest.approx([*gains, (0.19 - 0.05 + 0.16) / 3])
    assert {verdict.outcome for verdict in session.verdicts} == {"not settled"}
