"""Pruners on small encoders."""

from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel

from bermo_ray.pruning.pruner import Pruner
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import L0, Penalized, Pruning, SoftMovement


def tiny_bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    return BertModel(config).eval()


def schedule(settings: Pruning, total: int = 10, warmup: int = 1) -> Schedule:
    return Schedule.from_settings(settings, total, warmup)


def attached(modules: nn.ModuleList, settings: Pruning) -> Pruner:
    pruner = Pruner(settings, schedule(settings))
    pruner.attach(modules)
    return pruner


def scores(pruner: Pruner, index: int) -> torch.Tensor:
    parameter = pruner.matrices[index].scores
    assert parameter is not None
    return parameter.data


# One threshold from beginning to end, wherever there is one.
def penalized(method: str, threshold: float = 0.1, **values: Any) -> Penalized:
    if method == "l0":
        return L0(**values)
    return SoftMovement(initial_threshold=threshold, final_threshold=threshold, **values)
