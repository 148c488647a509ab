"""Trial -> module: the stock model with the task's head, fewer layers, and a fusion on it."""

from dataclasses import dataclass
from typing import Any

import torch

from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fusion, heads, layer_drop
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class Assembled:
    """A model ready to train: ``model`` is the stock one, with ``fusion`` as its submodule."""

    model: Any
    stack: backbone.Stack
    fusion: fusion.Fusion
    dropped: list[int]


def build(trial: Trial, task: Task) -> Assembled:
    """The trial's model, initialised by its seed alone."""
    torch.manual_seed(trial.seed)
    model = heads.load(trial.backbone, task)
    stack = backbone.stack(model)
    gone = layer_drop.apply(stack, trial.layer_drop) if trial.layer_drop else []
    fused = fusion.attach(model, stack, trial.fusion)
    if trial.mode == "features":
        base = model.base_model
        pooler = getattr(base, "pooler", None)
        for parameter in base.parameters():
            parameter.requires_grad_(False)
        if pooler is not None:  # the pooler belongs to the head: untrained in most checkpoints
            for parameter in pooler.parameters():
                parameter.requires_grad_(True)
    return Assembled(model, stack, fused, gone)


def problems(trial: Trial, task: Task) -> list[str]:
    """What keeps the trial's model from being built, a line each; the weights are loaded once."""
    try:
        config = backbone.config(trial.backbone)
        backbone.tokenizer(trial.backbone)
        count = backbone.stack(heads.load(trial.backbone, task)).depth
    except UserError as error:
        return list(error.problems)
    found: list[str] = []
    positions = getattr(config, "max_position_embeddings", None) or 0
    if config.model_type in ("roberta", "xlm-roberta"):
        positions -= config.pad_token_id + 1  # it counts positions from behind the padding's
    if 0 < positions < trial.data.max_length:
        asked = trial.data.max_length
        found.append(f"data.max_length: got {asked}, {trial.backbone} has {positions} positions")
    if trial.layer_drop is not None:
        try:
            gone = layer_drop.dropped(trial.layer_drop, count)
            if refused := layer_drop.problem(config, gone):
                found.append(refused)
            count -= len(gone)
        except UserError as error:
            found += error.problems
    return found + fusion.problems(trial.fusion, count)
