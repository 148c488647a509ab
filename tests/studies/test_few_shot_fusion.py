"""Few rows and epochs on a frozen encoder: its trials, and its verdicts on made-up results."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import hyperparameters
from bermo_ray.results.few_shot import early_leads, late_leads
from bermo_ray.search.recommended import recommended_trial
from bermo_ray.trial import Trial
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

few_shot_fusion = load_script("few_shot_fusion")
FUSIONS = ("extra_layers", "concat", "dwatt")


def settings(name: str) -> list[float]:
    rows = hyperparameters("dwatt", "6.1").to_pylist()
    return [row["value"] for row in rows if row["setting"] == name]


def row(
    task: str, fusion: str, shots: int, epochs: int, seed: int, reported: float, metric: float = 0.5
) -> dict[str, Any]:
    trial = Trial().replace(data={"task": task, "shots": shots}, epochs=epochs, seed=seed)
    return {
        "task": task, "backbone": "embedded", "fusion": fusion, "seed": seed, "epochs": epochs,
        "status": "completed", "metric": metric, "metric_test": reported,
        "trial_json": trial.to_json(),
    }  # fmt: skip


def test_default_trials_vary_shots_epochs_fusion_and_seed() -> None:
    trials = few_shot_fusion.plan(few_shot_fusion.Options()).trials
    start = recommended_trial("few_shot", "embedded")
    assert (start.mode, start.final_checkpoint) == ("features", "best")
    assert {t.id for t in trials} == {
        start.replace(
            data={"task": "entities", "shots": shots}, fusion=fusion, epochs=epochs, seed=seed
        ).id
        for fusion in FUSIONS
        for shots in (8, 16, 64)
        for epochs in (10, 25)
        for seed in range(5)
    }
    assert len(trials) == 3 * 3 * 2 * 5


def test_papers_trials_are_those_of_figures_3_and_5() -> None:
    trials = few_shot_fusion.plan(few_shot_fusion.Options(paper=True)).trials
    assert len(trials) == 2 * 3 * 5 * 4 * 5
    assert sorted({t.data.shots for t in trials}) == settings("data.shots")
    assert sorted({t.epochs for t in trials}) == settings("epochs")
    assert {t.data.task for t in trials} == {"conll2003", "wikiann/en"}
    assert {t.seed for t in trials} == {0, 1, 2, 3, 4}
    for t in trials:
        assert (t.backbone, t.mode, t.final_checkpoint) == ("roberta-large", "features", "best")
        assert t.data.whole_dev
        assert (t.batch_size, t.optimizer.learning_rate, t.optimizer.warmup) == (16, 5e-5, 0)


def test_options_change_the_grid() -> None:
    options = few_shot_fusion.Options(shot_counts=(4,), epoch_counts=(1, 2), fusions=("last",))
    trials = few_shot_fusion.plan(options).trials
    assert {(t.data.shots, t.epochs, t.fusion.name) for t in trials} == {
        (4, 1, "last"), (4, 2, "last"),
    }  # fmt: skip
    with pytest.raises(UserError, match="epochs: this study varies it"):
        few_shot_fusion.plan(few_shot_fusion.Options(epochs=3))
    with pytest.raises(UserError, match="shots"):
        few_shot_fusion.plan(few_shot_fusion.Options(train_rows=100))


def test_claims_are_those_of_the_figures() -> None:
    def told(task: str) -> dict[tuple[str, str], float | None]:
        return {(first, second): claim.published for first, second, claim in late_leads(task)}

    conll = {("extra_layers", "dwatt"): 5.28, ("concat", "dwatt"): 1.6}
    conll[("extra_layers", "concat")] = 3.68
    assert told("conll2003") == told("entities") == conll
    assert told("wikiann/en") == {("concat", "dwatt"): 2.08, ("extra_layers", "dwatt"): 0.92}
    (_, _, claim), (_, _, english) = *early_leads("conll2003"), *early_leads("wikiann/en")
    assert (claim.source, claim.published) == ("DWAtt, Figure 3", None)
    assert english.source == "DWAtt, Figure 5"
    assert "58" not in english.text


def values(fusion: str, shots: int, epochs: int) -> float:
    """F1 of seed 0: only at the two ends of the grid as the verdicts should have it."""
    return {
        ("extra_layers", 8, 10): 0.10, ("concat", 8, 10): 0.40,
        ("extra_layers", 64, 25): 0.90, ("concat", 64, 25): 0.95, ("dwatt", 64, 25): 0.92,
    }.get((fusion, shots, epochs), 0.0)  # fmt: skip


def made_up(task: str = "entities") -> list[dict[str, Any]]:
    cells = [(f, s, e, seed) for seed in (0, 1) for e in (10, 25) for s in (8, 64) for f in FUSIONS]
    return [row(task, f, s, e, seed, values(f, s, e) + 0.002 * seed) for f, s, e, seed in cells]


def test_verdicts_are_of_both_ends_of_the_grid(tmp_path: Path) -> None:
    session = FakeSession(few_shot_fusion.Options(), tmp_path)
    few_shot_fusion.report(session, result_table(*made_up()))
    assert [(v.claim[:25], round(v.value or 0, 6)) for v in session.verdicts] == [
        ("Concat beats extra layers", 30.0),
        ("DWAtt beats extra layers ", 2.0),
        ("DWAtt beats Concat at the", -3.0),
        ("Concat beats extra layers", 5.0),
    ]
    assert [v.outcome for v in session.verdicts] == ["agrees", "agrees", "contradicts", "agrees"]
    assert session.verdicts[0].where == "entities on embedded, 8 shots, 10 epochs"
    assert session.verdicts[1].where == "entities on embedded, 64 shots, 25 epochs"
    # Welch of two seeds 0.2 points apart in both arms: 4.303 · 0.1 · √2 = 0.61.
    assert session.verdicts[1].low == pytest.approx(2.0 - 0.6085, abs=1e-3)
    means = session.tables["means"].to_pylist()
    assert [(r["epochs"], r["shots"], r["fusion"]) for r in means[:4]] == [
        (10, 8, "extra_layers"), (10, 8, "concat"), (10, 8, "dwatt"), (10, 64, "extra_layers"),
    ]  # fmt: skip
    out = session.printed()
    assert "10      8       10.10 ±1.27" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "verdict" not in line)
    assert [file.name for file in session.figure_files] == ["few_shot_entities.png"]
    assert session.figure_files[0].stat().st_size > 5_000


def test_with_paper_the_dev_score_counts_and_each_task_has_its_figure(tmp_path: Path) -> None:
    rows = [
        row(task, fusion, 8, 25, seed, 0.3, metric=metric)
        for task in ("conll2003", "wikiann/en")
        for fusion, metric in zip(FUSIONS, (0.1, 0.2, 0.4), strict=True)
        for seed in (0, 1)
    ]
    session = FakeSession(few_shot_fusion.Options(paper=True), tmp_path)
    few_shot_fusion.report(session, result_table(*rows))
    assert [round(v.value or 0, 6) for v in session.verdicts] == [10, 30, 20, 10, 10, 20, 30]
    assert [v.source[-1] for v in session.verdicts] == ["3", "2", "2", "2", "5", "5", "5"]
    assert session.verdicts[0].where.startswith("conll2003 on roberta-large")
    assert session.verdicts[-1].where.startswith("wikiann/en on roberta-large")
    assert len(session.figure_files) == 2


def test_a_fusion_that_was_not_run_has_no_answer(tmp_path: Path) -> None:
    rows = [r for r in made_up() if r["fusion"] != "dwatt"]
    session = FakeSession(few_shot_fusion.Options(fusions=FUSIONS[:2]), tmp_path)
    few_shot_fusion.report(session, result_table(*rows))
    outcomes = [v.outcome for v in session.verdicts]
    assert outcomes == ["agrees", "no answer", "no answer", "agrees"]
