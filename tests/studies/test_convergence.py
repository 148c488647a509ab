"""Pruning with several numbers of epochs: its trials, and the verdicts on made-up results."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import published_values
from bermo_ray.search.recommended import recommended_trial
from tests.results.test_convergence import BOTH, arm
from tests.search.test_paper_settings import appendix, same_settings
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

convergence = load_script("convergence")
# Training rows; of SQuAD the windows of 384 pieces that its 87,599 questions make, at least.
TRAIN_ROWS = {"mnli": 392_702, "qqp": 363_846, "squad": 88_000}


def test_default_trials_vary_epochs_and_share_four_with_stability() -> None:
    options = convergence.Options()
    trials = convergence.plan(options).trials
    start = recommended_trial("movement", "embedded")
    assert {t.id for t in trials} == {
        start.replace(fusion=fusion, seed=seed, epochs=epochs).id
        for fusion in ("last", "bermo")
        for seed in options.seeds
        for epochs in (1, 2, 3, 4, 6)
    }
    stability = load_script("stability")
    shared = {t.id for t in stability.plan(stability.Options()).trials} & {t.id for t in trials}
    assert len(shared) == 2 * len(options.seeds)


def test_papers_trials_are_those_of_table_7() -> None:
    trials = convergence.plan(convergence.Options(paper=True)).trials
    assert len(trials) == 2 * (5 + 6 + 8)
    for trial in trials:
        settings = appendix("T7", trial.data.task, trial.fusion.name)
        same_settings(trial, {k: v for k, v in settings.items() if k != "epochs"})
        assert trial.data.whole_dev


@pytest.mark.parametrize("task", ["mnli", "qqp", "squad"])
def test_papers_epochs_go_from_the_fewest_that_table_7_allows_to_table_8s(task: str) -> None:
    trials = convergence.plan(convergence.Options(paper=True)).trials
    counts = sorted({t.epochs for t in trials if t.data.task == task})
    trial: Any = next(t for t in trials if t.data.task == task)
    flat = (trial.pruning.flat_start + trial.pruning.flat_end) * trial.optimizer.warmup
    steps = math.ceil(TRAIN_ROWS[task] / trial.batch_size)
    assert (counts[0] - 1) * steps <= flat < counts[0] * steps
    assert counts[-1] == appendix("T8", task, "last")["epochs"]
    assert counts == list(range(counts[0], counts[-1] + 1))


def test_options_of_epochs() -> None:
    trials = convergence.plan(convergence.Options(epoch_counts=(1, 5), seeds=(7,))).trials
    assert sorted((t.epochs, t.fusion.name) for t in trials) == [
        (epochs, fusion) for epochs in (1, 5) for fusion in ("bermo", "last")
    ]
    for counts in ((3,), (2, 2)):
        with pytest.raises(UserError, match="^epoch_counts: got .*, expected two or more"):
            convergence.plan(convergence.Options(epoch_counts=counts))
    with pytest.raises(UserError, match="^epochs: this study varies it; leave it out$"):
        convergence.plan(convergence.Options(epochs=3))


def test_claims_are_the_texts() -> None:
    told = published_values("bermo", "text", ("task",), quantity="speedup")
    assert {(task,): speedup for task, speedup in convergence.SPEEDUPS.items()} == told
    claims = {task: convergence.make_claim(task) for task in ("mnli", "qqp", "squad", "tense")}
    assert {task: claim.expects for task, claim in claims.items()} == {
        "mnli": "less", "qqp": "less", "squad": "same", "tense": "less",
    }  # fmt: skip
    assert claims["mnli"].published == pytest.approx(0.6, abs=0.005)
    assert claims["qqp"].published == pytest.approx(0.87, abs=0.005)
    assert (claims["squad"].published, claims["tense"].published) == (None, None)


def test_a_verdict_for_each_task(tmp_path: Path) -> None:
    # mnli: BERT is at 0.8 after exactly 4 and 6 epochs, BERMo after 2 and 3; qqp: all diverged.
    mnli = BOTH.set_column(
        BOTH.column_names.index("task"), "task", pa.array(["mnli"] * BOTH.num_rows)
    )
    qqp = [arm(name, (None, None, None), task="qqp") for name in ("last", "bermo")]
    session = FakeSession(convergence.Options(tasks=("mnli", "qqp")), tmp_path)
    convergence.report(session, pa.concat_tables([mnli, *qqp]))
    faster, unknown = session.verdicts
    assert (faster.value, faster.count) == (pytest.approx(0.5), 2)
    assert faster.where == "mnli on b"
    assert "needs 0.50× BERT's epochs (95 % interval" in faster.sentence
    assert faster.outcome == "not settled"
    assert unknown.sentence.startswith("qqp on b: no answer: fusion: no trial with last or bermo")
    matches = session.tables["matches"].to_pylist()
    assert [(m["task"], m["arm"]) for m in matches] == [("mnli", "last"), ("mnli", "bermo")]
    out = " ".join(session.printed().split())
    assert "bermo reaches after 4.0" in out
    assert "the paper's bermo converges after 3" in out
    assert "the paper's last converges after 5" in out
    assert (tmp_path / "convergence.png").is_file()
