from typing import Any

import pytest
import torch

from bermo_ray.training.setup import set_up
from tests.support.runs import small_trial


def test_features_mode_trains_fusion_and_head_alone(tiny: str) -> None:
    trial = small_trial(tiny, pruning=None, mode="features", epochs=1)
    run = set_up(trial, 1, torch.device("cpu"))
    names = {n for n, p in run.model.network.named_parameters() if p.requires_grad}
    assert names == {
        "fusion.alpha", "fusion.gamma", "classifier.weight", "classifier.bias",
        "bert.pooler.dense.weight", "bert.pooler.dense.bias",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "are_frozen"),
    [
        ({}, True),  # it prunes
        ({"freeze_embeddings": False}, False),
        ({"pruning": None}, False),
        ({"pruning": None, "freeze_embeddings": True}, True),
    ],
)
def test_embeddings_are_frozen_while_pruning_or_as_the_trial_says(
    tiny: str, changes: dict[str, Any], are_frozen: bool
) -> None:
    run = set_up(small_trial(tiny, **changes), 1, torch.device("cpu"))
    embeddings = {id(p) for p in run.model.network.bert.embeddings.parameters()}
    assert embeddings
    trained = {id(p) for p in run.trained_parameters()}
    assert embeddings & trained == (set() if are_frozen else embeddings)
