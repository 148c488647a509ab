"""AdamW with one rate for weights and one for scores and fusion scalars (methods §2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from bermo_ray.models.assembly import Assembled
from bermo_ray.pruning.pruner import Pruner, is_matrix
from bermo_ray.trial import Optimizer


def build(
    settings: Optimizer, assembled: Assembled, pruner: Pruner | None, total: int, warmup: int
) -> tuple[torch.optim.AdamW, LambdaLR]:
    """Three groups: mask rate without decay; weights with decay; biases and norms without.

    Torch's default decay of 0.01 would pull scores to 0, so every group states its own.
    """
    fast = list(assembled.fusion.scalars()) + (pruner.scores() if pruner else [])
    fast_ids = {id(p) for p in fast}
    slow = {
        name: p
        for name, p in assembled.model.named_parameters()
        if p.requires_grad and id(p) not in fast_ids
    }
    groups: list[dict[str, Any]] = [
        {
            "params": [p for p in fast if p.requires_grad],
            "lr": settings.mask_rate,
            "weight_decay": 0.0,
        },
        {
            "params": [p for name, p in slow.items() if is_matrix(name, p)],
            "lr": settings.learning_rate,
            "weight_decay": settings.weight_decay,
        },
        {
            "params": [p for name, p in slow.items() if not is_matrix(name, p)],
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


def forget(optimizer: torch.optim.Optimizer, here: Iterable[torch.Tensor]) -> None:
    """Drops what is not ``here`` any more. Moments of a parameter that lost entries (BERMo's α)
    start anew."""
    alive = {id(p) for p in here}
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if id(p) in alive]
    for parameter, state in list(optimizer.state.items()):
        if id(parameter) not in alive or state["exp_avg"].shape != parameter.shape:
            del optimizer.state[parameter]
