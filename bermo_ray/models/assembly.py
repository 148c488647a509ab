"""Trial -> module: the stock model with the task's head, fewer layers, and a fusion on it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fusion, heads, layer_drop
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class Assembled:
    """A model ready to train: ``model`` is the stock one, with ``fusion`` as its submodule."""

    model: Any
    layers: nn.ModuleList
    fusion: fusion.Fusion
    dropped: list[int]


def build(trial: Trial, task: Task) -> Assembled:
    """The trial's model, initialised by its seed alone."""
    torch.manual_seed(trial.seed)
    model = heads.load(trial.backbone, task)
    layers = backbone.layers(model)
    gone = layer_drop.apply(model, layers, trial.layer_drop) if trial.layer_drop else []
    fused = fusion.attach(model, layers, trial.fusion, model.config.hidden_size)
    if trial.mode == "features":
        base = model.base_model
        pooler = getattr(base, "pooler", None)
        for parameter in base.parameters():
            parameter.requires_grad_(False)
        if pooler is not None:  # the pooler belongs to the head: untrained in most checkpoints
            for parameter in pooler.parameters():
                parameter.requires_grad_(True)
    return Assembled(model, layers, fused, gone)


def problems(trial: Trial) -> list[str]:
    """What keeps the trial's model from being built, a line each, without loading weights."""
    try:
        count = backbone.config(trial.backbone).num_hidden_layers
    except UserError as error:
        return list(error.problems)
    found: list[str] = []
    if trial.layer_drop is not None:
        try:
            count -= len(layer_drop.dropped(trial.layer_drop, count))
        except UserError as error:
            found += error.problems
    return found + fusion.problems(trial.fusion, count)
