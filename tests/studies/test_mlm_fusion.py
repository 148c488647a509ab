"""Masked words: its trials, and its verdicts on made-up results."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.search.recommended import recommended_trial
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

mlm_fusion = load_script("mlm_fusion")
FUSIONS = ("last", "extra_layers", "concat", "dwatt")


def test_default_trials_end_with_the_least_loss() -> None:
    trials = mlm_fusion.plan(mlm_fusion.Options()).trials
    start = recommended_trial("masked", "embedded")
    assert (start.mode, start.final_checkpoint) == ("finetune", "best_loss")
    assert {t.id for t in trials} == {
        start.replace(data={"task": "masked_words"}, fusion=fusion, seed=seed).id
        for fusion in FUSIONS
        for seed in (0, 1, 2)
    }


def test_papers_trials_are_those_of_9_1() -> None:
    trials = mlm_fusion.plan(mlm_fusion.Options(paper=True)).trials
    assert [t.fusion.name for t in trials] == list(FUSIONS)
    for t in trials:
        assert (t.data.task, t.backbone, t.mode) == ("wikitext2", "roberta-large", "finetune")
        assert (t.batch_size, t.optimizer.learning_rate, t.optimizer.warmup) == (8, 5e-5, 0)
        assert t.final_checkpoint == "best_loss"


def test_claims_are_those_of_table_3() -> None:
    told = {key: claim.published for key, claim in mlm_fusion.CLAIMS.items()}
    assert told == {
        ("last", "dwatt"): pytest.approx(2.91 / 2.90),
        ("extra_layers", "dwatt"): pytest.approx(2.91 / 2.98),
        ("last", "concat"): pytest.approx(3.44 / 2.90),
    }


def row(fusion: str, seed: int, perplexity: float) -> dict[str, Any]:
    return {
        "task": "masked_words", "backbone": "embedded", "fusion": fusion, "seed": seed,
        "status": "completed", "metric": 0.3, "metric_test": 0.3,
        "other_metrics": [("perplexity", 99.0), ("test_perplexity", perplexity)],
    }  # fmt: skip


def test_verdicts_are_ratios_of_test_perplexities(tmp_path: Path) -> None:
    values = {"last": 10.0, "extra_layers": 11.0, "concat": 15.0, "dwatt": 10.2}
    rows = [row(f, seed, v * (1 + 0.001 * seed)) for f, v in values.items() for seed in (0, 1, 2)]
    session = FakeSession(mlm_fusion.Options(), tmp_path)
    mlm_fusion.report(session, result_table(*rows))
    base, extra, concat = session.verdicts
    assert [v.value for v in session.verdicts] == pytest.approx([1.02, 10.2 / 11, 1.5])
    assert [v.outcome for v in session.verdicts] == ["agrees"] * 3
    assert (base.published, extra.published) == (pytest.approx(2.91 / 2.9), pytest.approx(2.91 / 2.98))  # fmt: skip # noqa: E501
    assert concat.sentence.startswith("here: against the encoder as it is, Concat's perplexity is 1.50×")  # fmt: skip # noqa: E501
    means = {r["fusion"]: r["mean"] for r in session.tables["means"].to_pylist()}
    assert list(means) == list(FUSIONS)
    assert means["last"] == pytest.approx(10.01)
    out = session.printed()
    assert "last           10.01 ±0.02          2.90" in out
    assert "dwatt          10.21 ±0.03          2.91" in out
    assert session.figure_files[0].stat().st_size > 5_000


@pytest.mark.parametrize(
    ("dwatt", "outcome"), [(10.4, "agrees"), (10.6, "contradicts"), (9.4, "contradicts")]
)
def test_the_same_is_within_5_percent(tmp_path: Path, dwatt: float, outcome: str) -> None:
    rows = [row(f, s, v + 0.01 * s) for f, v in (("last", 10.0), ("dwatt", dwatt)) for s in (0, 1)]
    session = FakeSession(mlm_fusion.Options(fusions=("last", "dwatt")), tmp_path)
    mlm_fusion.report(session, result_table(*rows))
    assert session.verdicts[0].outcome == outcome
    assert [v.outcome for v in session.verdicts[1:]] == ["no answer", "no answer"]
