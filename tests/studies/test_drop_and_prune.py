"""Which mixes of dropping and pruning are trained."""

import pytest

from tests.support.studies import load_script


def test_every_size_is_made_up_of_layers_and_density(deeper: str) -> None:
    script = load_script("drop_and_prune")
    options = script.Options(backbone=deeper, sizes=(0.5,), counts=(0, 1, 2, 3), seeds=(4,))
    undropped, *mixes = script.plan(options).trials
    assert (undropped.pruning, undropped.layer_drop) == (None, None)
    counts = [trial.layer_drop.count if trial.layer_drop else 0 for trial in mixes]
    assert counts == [0, 1, 2]  # one of four layers is less than half
    densities = [trial.pruning.target_density if trial.pruning else 1.0 for trial in mixes]
    assert densities == pytest.approx([1 / 2, 2 / 3, 1.0])


def test_all_of_them_train_their_embeddings(deeper: str) -> None:
    script = load_script("drop_and_prune")
    trials = script.plan(script.Options(backbone=deeper, sizes=(0.5,), counts=(0, 2))).trials
    assert [trial.pruning is not None for trial in trials] == [False, True, False]
    assert [trial.freeze_embeddings for trial in trials] == [False] * 3
