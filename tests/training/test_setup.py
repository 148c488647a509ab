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
