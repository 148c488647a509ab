"""AdamW with a rate each for weights, mask scores and fusion scalars (docs/methods.md §2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from bermo_ray.models.assembly import AssembledModel
from bermo_ray.pruning.pruner import Pruner, is_matrix
from bermo_ray.trial import Optimizer


def build_optimizer(
    settings: Optimizer, model: AssembledModel, pruner: Pruner | None, total: int, warmup: int
) -> tuple[torch.optim.AdamW, LambdaLR]:
    """Four groups, those without parameters left out: mask scores and fusion scalars, each at a
    rate of its own and without decay; weight matrices with decay; biases and norms without. All
    rates rise over ``warmup`` steps and fall to 0 at step ``total``.

    Torch's default decay of 0.01 would pull scores to 0, so every group states its own.
    """
    scalars = model.fusion.scalars()
    scalar_ids = {id(p) for p in scalars}
    weights = {
        name: p
        for name, p in model.network.named_parameters()
        if p.requires_grad and id(p) not in scalar_ids
    }
    groups: list[dict[str, Any]] = [
        {
            "params": pruner.scores() if pruner else [],
            "lr": settings.score_learning_rate,
            "weight_decay": 0.0,
        },
        {
            "params": [p for p in scalars if p.requires_grad],
            "lr": settings.fusion_learning_rate,
            "weight_decay": 0.0,
        },
        {
            "params": [p for name, p in weights.items() if is_matrix(name, p)],
            "lr": settings.learning_rate,
            "weight_decay": settings.weight_decay,
        },
        {
            "params": [p for name, p in weights.items() if not is_matrix(name, p)],
            "lr": settings.learning_rate,
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(
        [g for g in groups if g["params"]], betas=(0.9, 0.999), eps=1e-8, fused=True
    )

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return max(0.0, (total - step) / max(1, total - warmup))

    return optimizer, LambdaLR(optimizer, share)


def forget_removed(optimizer: torch.optim.Optimizer, present: Iterable[torch.Tensor]) -> None:
    """Drops all parameters that are not ``present`` any more. Moments of one that lost entries
    (BERMo's α) start anew."""
    ids = {id(p) for p in present}
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if id(p) in ids]
    for parameter, state in list(optimizer.state.items()):
        if id(parameter) not in ids or state["exp_avg"].shape != parameter.shape:
            del optimizer.state[parameter]
