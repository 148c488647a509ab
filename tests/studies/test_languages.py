"""Tiers of languages: its trials, and its verdicts on made-up results."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import hyperparameters
from bermo_ray.search.recommended import recommended_trial
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

languages = load_script("languages")
FUSIONS = ("extra_layers", "concat", "dwatt")
DIALECTS = ("entities", "entities/dialect30", "entities/dialect60")


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERMO_DATA", raising=False)


def test_default_trials_are_dialects() -> None:
    trials = languages.plan(languages.Options()).trials
    start = recommended_trial("few_shot", "embedded")
    assert {t.id for t in trials} == {
        start.replace(
            data={"task": task, "train_rows": 100}, epochs=25, fusion=fusion, seed=seed
        ).id
        for task in DIALECTS
        for fusion in FUSIONS
        for seed in range(5)
    }
    assert len(trials) == 3 * 3 * 5


def test_papers_trials_have_100_rows_of_each_language() -> None:
    trials = languages.plan(languages.Options(paper=True)).trials
    (rows,) = hyperparameters("dwatt", "3.1").to_pylist()
    assert {t.data.train_rows for t in trials} == {rows["value"]}
    assert {t.data.task for t in trials} == {f"wikiann/{c}" for c in ("de", "fr", "pt", "sw", "am")}
    assert len(trials) == 5 * 3 * 5
    for t in trials:
        assert (t.backbone, t.mode, t.epochs) == ("xlm-roberta-large", "features", 25)
        assert (t.batch_size, t.optimizer.learning_rate, t.data.whole_dev) == (16, 5e-5, True)
    languages.Options(paper=True, tiers=("low=yo",)).check_paper()
    with pytest.raises(UserError, match="task: got entities, but the paper has wikiann"):
        languages.Options(paper=True, tiers=("low=entities",)).check_paper()


def test_options_of_rows() -> None:
    few = languages.plan(languages.Options(shots=8, seeds=(0,))).trials
    assert {(t.data.shots, t.data.train_rows) for t in few} == {(8, None)}
    more = languages.plan(languages.Options(train_rows=150, epochs=2, seeds=(0,))).trials
    assert {(t.data.train_rows, t.epochs) for t in more} == {(150, 2)}


def test_a_tier_without_its_files_is_one_line(tmp_path: Path) -> None:
    options = languages.Options(data_dir=str(tmp_path), tiers=("high=entities", "low=am,yo"))
    with pytest.raises(UserError) as raised:
        languages.plan(options)
    (line,) = raised.value.problems
    assert line.startswith("tiers: low lacks the rows of am, yo: task wikiann/am: no file ")


def row(task: str, fusion: str, seed: int, reported: float, metric: float = 0.5) -> dict[str, Any]:
    return {
        "task": task, "backbone": "embedded", "fusion": fusion, "seed": seed,
        "status": "completed", "metric": metric, "metric_test": reported,
    }  # fmt: skip


# Points of F1 of extra layers, Concat and DWAtt.
F1 = {"wikiann/de": (80, 82, 78), "wikiann/fr": (70, 73, 68), "wikiann/sw": (60, 66, 64),
      "wikiann/am": (30, 36, 32)}  # fmt: skip
TIERS = ("high=de,fr", "mid=sw", "low=am")


def made_up(key: str = "reported") -> list[dict[str, Any]]:
    return [
        row(task, fusion, seed, **({"reported": 0.5} | {key: (value + 0.1 * seed) / 100}))
        for seed in (0, 1, 2)
        for task, values in F1.items()
        for fusion, value in zip(FUSIONS, values, strict=True)
    ]


@pytest.mark.parametrize("paper", [False, True])
def test_verdicts_of_tiers(tmp_path: Path, paper: bool) -> None:
    options = languages.Options(paper=paper, tiers=TIERS, backbone="xlm-roberta-large")
    session = FakeSession(options, tmp_path)
    table = result_table(*made_up("metric" if paper else "reported"))
    languages.report(session, table)
    # Means of Concat and DWAtt over languages: 75.25 − 75, 65 − 60, 34 − 30.
    assert [round(v.value or 0, 6) for v in session.verdicts] == [0.25, 5, 4]
    # High: 2.78 · 0.1 · √(2/3) = 0.23 points to each side, within one.
    assert [v.outcome for v in session.verdicts] == ["agrees", "contradicts", "agrees"]
    assert session.verdicts[0].high == pytest.approx(0.25 + 0.2267, abs=1e-3)
    assert session.verdicts[2].where == "WikiAnn on xlm-roberta-large, low tier"
    means = session.tables["means"].to_pylist()
    assert [(r["tier"], r["task"]) for r in means[::3]] == [
        ("high", "wikiann/de"),
        ("high", "wikiann/fr"),
        ("mid", "wikiann/sw"),
        ("low", "wikiann/am"),
    ]
    assert "high  de     80.10 ±0.25  82.10 ±0.25" in session.printed()
    assert session.figure_files[0].stat().st_size > 5_000


def test_a_language_of_which_an_arm_diverged_leaves_its_seed_out(tmp_path: Path) -> None:
    rows = made_up()
    for one in rows:
        if (one["task"], one["fusion"], one["seed"]) == ("wikiann/fr", "dwatt", 0):
            one["status"] = "diverged"
    session = FakeSession(languages.Options(tiers=TIERS), tmp_path)
    languages.report(session, result_table(*rows))
    assert [v.count for v in session.verdicts] == [2, 3, 3]
