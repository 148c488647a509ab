"""A row's states pooled into one vector, which a classifier's head reads in place of [CLS].

Stock heads read the first token's state. So the pooled vector is put there, behind the last layer
and the fusion: the head itself, whatever its family, stays as it is.

Shapes: b rows of a batch, s word pieces of its longest row, d the encoder's width.
"""

from typing import Any

import torch
from torch import nn

from bermo_ray.models.backbone import CallLayer, Stack, on_states


def pool_states(state: torch.Tensor, attention_mask: torch.Tensor, mode: str) -> torch.Tensor:
    """``[b, d]``: the mean or the maximum over a row's tokens, padding left out.

    Args:
        state: ``[b, s, d]``.
        attention_mask: ``[b, s]``, 0 where a row is padded.
        mode: ``mean`` or ``max``.
    """
    present = attention_mask.to(state.dtype).unsqueeze(-1)  # [b, s, 1]
    if mode == "mean":
        return (state * present).sum(1) / present.sum(1).clamp(min=1e-9)
    return state.masked_fill(present == 0, torch.finfo(state.dtype).min).amax(1)


def attach_pooling(stack: Stack, mode: str) -> None:
    """Puts the pooled vector in place of each row's first state, in every forward of the stack; to
    be called behind the fusion's attachment, whose state is pooled."""
    masks: list[torch.Tensor | None] = [None]  # of the forward that is going on

    def keep_mask(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        masks[0] = kwargs.get("attention_mask")

    def pool_last(index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index < stack.depth:
            return state
        mask = state.new_ones(state.shape[:2]) if masks[0] is None else masks[0]
        pooled = pool_states(state, mask, mode)
        return torch.cat([pooled.unsqueeze(1), state[:, 1:]], 1)

    stack.base.register_forward_pre_hook(keep_mask, with_kwargs=True)
    on_states(stack, pool_last)
