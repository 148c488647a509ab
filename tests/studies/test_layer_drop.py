"""Which layers are dropped by default, as in the paper, and from fine-tuned models."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.results import hyperparameters
from bermo_ray.search.recommended import recommended_trial
from bermo_ray.trial import LayerDrop, Trial
from tests.support.studies import load_script


@pytest.fixture
def script() -> Any:
    return load_script("layer_drop")


def drop_of(trial: Trial) -> LayerDrop:
    assert trial.layer_drop is not None
    return trial.layer_drop


def test_by_default_eight_strategies_with_three_counts_and_a_threshold(script: Any) -> None:
    trials = script.plan(script.Options()).trials
    assert len(trials) == 3 * (1 + 8 * 3 + 1)
    assert Counter(trial.seed for trial in trials) == {0: 26, 1: 26, 2: 26}
    undropped = [trial for trial in trials if trial.layer_drop is None]
    # The same as other studies' dense models, so that those are taken.
    dense = recommended_trial("dense", "embedded").replace(data={"task": "tense"})
    assert [trial.id for trial in undropped] == [dense.replace(seed=s).id for s in (0, 1, 2)]
    drops = [drop_of(trial) for trial in trials if trial.layer_drop and trial.seed == 0]
    assert Counter(drop.count for drop in drops) == {1: 8, 2: 8, 3: 8, 0: 1}
    assert [drop.threshold for drop in drops if not drop.count] == [0.95]


def test_the_papers_settings_need_no_encoder(script: Any) -> None:
    trials = script.plan(script.Options(paper=True)).trials
    assert {trial.seed for trial in trials} == {0}
    by_encoder = Counter(trial.backbone for trial in trials)
    assert by_encoder == {
        "bert-base-uncased": 7 * (1 + 8 * 3 + 3),
        "xlnet-base-cased": 7 * (1 + 8 * 3 + 3),
        "roberta-base": 7 * (1 + 8 * 3),
        "distilbert-base-uncased": 7 * (1 + 8 * 3),
        "albert-base-v2": 7 * (1 + 3),  # whichever of its layers go, it is the same model
    }
    settings = hyperparameters("layer_dropping").to_pylist()
    assert {t.epochs for t in trials} == {
        row["value"] for row in settings if row["setting"] == "epochs"
    }
    counts = {note: {r["value"] for r in settings if r["note"] == note} for note in (
        "of 12 layers", "of DistilBERT's 6 layers", "strategy contribution"
    )}  # fmt: skip
    dropped = [(trial.backbone, drop_of(trial)) for trial in trials if trial.layer_drop]
    for name in by_encoder:
        note = "of DistilBERT's 6 layers" if name.startswith("distil") else "of 12 layers"
        assert {drop.count for b, drop in dropped if b == name and drop.count} == counts[note]
    limits = {drop.threshold for b, drop in dropped if b == "bert-base-uncased"} - {None}
    assert limits == counts["strategy contribution"]
    assert all(trial.data.whole_dev for trial in trials)


def test_fine_tuned_models_come_first_and_each_seed_starts_from_its_own(script: Any) -> None:
    options = script.Options(from_fine_tuned=True, strategies=("top",), counts=(3,), seeds=(0, 1))
    fine_tuned = script.teachers(options)
    assert [(trial.seed, trial.layer_drop) for trial in fine_tuned] == [(0, None), (1, None)]
    folders = {trial.id: f"/folder/{trial.seed}" for trial in fine_tuned}
    trials = script.plan(options, folders).trials
    started = {(t.seed, t.warm_start, t.layer_drop.count if t.layer_drop else 0) for t in trials}
    assert started == {
        (seed, *rest) for seed in (0, 1) for rest in ((None, 0), (None, 3), (f"/folder/{seed}", 3))
    }
    assert script.teachers(script.Options()) == []


def test_dropping_gradually_has_no_threshold(script: Any) -> None:
    options = script.Options(epochs_per_layer=2, epochs=12, strategies=("contribution",))
    drops = [drop_of(trial) for trial in script.plan(options).trials if trial.layer_drop]
    assert {(drop.epochs_per_layer, drop.threshold) for drop in drops} == {(2, None)}


def test_what_set_gives_is_laid_over_what_is_dropped(script: Any) -> None:
    options = script.Options(
        overrides=("layer_drop.epochs_per_layer=1", "epochs=9"), thresholds=(), seeds=(0,)
    )
    trials = script.plan(options).trials
    assert {drop_of(t).epochs_per_layer for t in trials if t.layer_drop} == {1}


def test_a_folder_stands_for_the_encoder_of_its_name(script: Any, tmp_path: Path) -> None:
    folder = tmp_path / "distilbert-base-uncased"
    folder.mkdir()
    options = script.Options(paper=True, backbones=(str(folder),), tasks=("rte",))
    options.check_paper()
    counts = {drop_of(t).count for t in script.plan(options).trials if t.layer_drop}
    assert counts == {1, 2, 3}
