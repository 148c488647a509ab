"""Frozen against fine-tuned, large against small: its trials, and its verdicts on made-up
results."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.results import published
from bermo_ray.trial import LayerDrop, Trial
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

features_vs_finetune = load_script("features_vs_finetune")
FUSIONS = ("extra_layers", "concat", "dwatt")


def test_default_trials_and_those_that_few_shot_fusion_ran() -> None:
    trials = features_vs_finetune.plan(features_vs_finetune.Options()).trials
    assert len(trials) == 3 * 3 * 2 * 3
    half = LayerDrop(strategy="top", count=3)
    arms = {(t.mode, t.layer_drop) for t in trials}
    assert arms == {("features", None), ("finetune", None), ("features", half)}
    assert {t.data.shots for t in trials} == {8, 64}
    assert {t.seed for t in trials} == {0, 1, 2}
    assert {(t.epochs, t.final_checkpoint, t.data.task) for t in trials} == {
        (25, "best", "entities")
    }
    earlier = load_script("few_shot_fusion")
    known = {t.id for t in earlier.plan(earlier.Options()).trials}
    shared = [t for t in trials if t.id in known]
    assert len(shared) == 3 * 2 * 3
    assert {(t.mode, t.layer_drop) for t in shared} == {("features", None)}


def test_papers_trials_are_those_of_figures_6_and_7() -> None:
    trials = features_vs_finetune.plan(features_vs_finetune.Options(paper=True)).trials
    assert len(trials) == 3 * 3 * 2 * 5
    assert {(t.mode, t.backbone) for t in trials} == {
        ("features", "roberta-large"), ("finetune", "roberta-large"), ("features", "roberta-base"),
    }  # fmt: skip
    told = [row for row in published("dwatt", "F6").to_pylist() if row["shots"]]
    assert {row["epochs"] for row in told} == {t.epochs for t in trials} == {50}
    assert {row["shots"] for row in told} <= {t.data.shots for t in trials} == {8, 128}
    assert {row["shots"] for row in published("dwatt", "F7").to_pylist()} == {8, 128}
    assert all(t.data.whole_dev and t.layer_drop is None for t in trials)
    assert {t.data.task for t in trials} == {"conll2003"}


def test_a_smaller_encoder_of_ones_own(tiny: str, deeper: str) -> None:
    options = features_vs_finetune.Options(
        backbone=deeper, small_backbone=tiny, shot_counts=(4,), seeds=(0,), epochs=2
    )
    trials = features_vs_finetune.plan(options).trials
    assert [t.backbone for t in trials] == [deeper] * 6 + [tiny] * 3
    assert {(t.epochs, t.data.shots, t.layer_drop) for t in trials} == {(2, 4, None)}
    halved = features_vs_finetune.plan(features_vs_finetune.Options(backbone=deeper)).trials
    assert {t.layer_drop.count for t in halved if t.layer_drop} == {2}


# Points of F1 of (encoder, fusion) at 8 and at 64 shots.
F1 = {
    ("frozen", "extra_layers"): (30, 80),
    ("frozen", "concat"): (50, 86),
    ("frozen", "dwatt"): (40, 84),
    ("tuned", "extra_layers"): (60, 90),
    ("tuned", "concat"): (52, 84),
    ("tuned", "dwatt"): (64, 92),
    ("small", "extra_layers"): (20, 70),
    ("small", "concat"): (35, 74),
    ("small", "dwatt"): (30, 76),
}


def made_up(small: str | None = None, key: str = "metric_test") -> list[dict[str, Any]]:
    rows = []
    for (encoder, fusion), points in F1.items():
        for seed in (0, 1, 2):
            for shots, value in zip((8, 64), points, strict=True):
                drop = {"strategy": "top", "count": 3} if encoder == "small" and not small else None
                trial = Trial().replace(data={"shots": shots}, layer_drop=drop)
                rows.append({
                    "task": "entities", "fusion": fusion, "seed": seed, "status": "completed",
                    "backbone": small if small and encoder == "small" else "embedded",
                    "mode": "finetune" if encoder == "tuned" else "features",
                    "metric": 0.5, "metric_test": 0.5, "trial_json": trial.to_json(),
                } | {key: (value + 0.1 * seed) / 100})  # fmt: skip
    return rows


@pytest.mark.parametrize("small", [None, "another"])
def test_verdicts(tmp_path: Path, small: str | None) -> None:
    session = FakeSession(features_vs_finetune.Options(), tmp_path)
    features_vs_finetune.report(session, result_table(*made_up(small)))
    *tuning, share, concat, dwatt = session.verdicts
    # Means over shots: 75 − 55, 68 − 68, 78 − 62.
    assert [round(v.value or 0, 6) for v in tuning] == [20, 0, 16]
    assert [v.outcome for v in tuning] == ["agrees", "not settled", "agrees"]
    # At 64 shots: (84 − 80) / (90 − 80), alike in all seeds.
    assert (share.value, share.low, share.high) == (pytest.approx(0.4),) * 3
    assert (share.outcome, share.published) == ("agrees", 0.5)
    assert share.where == "entities on embedded, 64 shots"
    # On the small encoder 54.5 and 53 against 55.
    assert (round(concat.value, 6), round(dwatt.value, 6)) == (-0.5, -2.0)
    assert (concat.outcome, dwatt.outcome) == ("agrees", "contradicts")
    means = {(r["shots"], r["encoder"], r["fusion"]): r["mean"] for r in session.tables["means"].to_pylist()}  # fmt: skip # noqa: E501
    assert means[64, "smaller, frozen", "dwatt"] == pytest.approx(0.761)
    assert means[8, "fine-tuned", "concat"] == pytest.approx(0.521)
    out = session.printed()
    assert out.index("8 shots, frozen") < out.index("8 shots, fine-tuned")
    assert session.figure_files[0].stat().st_size > 5_000


def test_with_paper_the_dev_score_counts(tmp_path: Path) -> None:
    session = FakeSession(features_vs_finetune.Options(paper=True), tmp_path)
    rows = [r | {"backbone": "roberta-large"} for r in made_up(key="metric")]
    features_vs_finetune.report(session, result_table(*rows))
    assert [round(v.value or 0, 6) for v in session.verdicts] == [20, 0, 16, 0.4, -0.5, -2]


def test_without_a_gain_there_is_no_share(tmp_path: Path) -> None:
    rows = [
        r | ({"metric_test": 0.8} if r["mode"] == "finetune" else {}) for r in made_up()
    ]  # fmt: skip
    session = FakeSession(features_vs_finetune.Options(), tmp_path)
    features_vs_finetune.report(session, result_table(*rows))
    share = session.verdicts[3]
    assert share.outcome == "no answer"
    assert "not clearly above 0" in share.sentence
