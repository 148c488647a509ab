"""Depth-wise attention over the layers' states (docs/methods.md §1)."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.models.backbone import CallLayer, Stack
from bermo_ray.models.fusion.base import FusionModule, without


def depth_wise_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Σ_n softmax_n(q·k_n) v_n for each token (depth-wise attention, §4); no 1/√d.

    Args:
        query: [..., d]
        keys: [L, d], the same for all tokens.
        values: [..., L, d]

    Returns:
        The mix, [..., d], and the attention, [..., L].
    """
    attention = (query @ keys.T).softmax(-1)
    return (attention.unsqueeze(-2) @ values).squeeze(-2), attention


class _Bottleneck(nn.Module):
    """f(x) = W·LN(gelu(Ux)), U: d → d/2 with bias, W: d/2 → d without; [..., d] → [..., d]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width // 2)
        self.norm = nn.LayerNorm(width // 2)
        self.outer = nn.Linear(width // 2, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.norm(F.gelu(self.inner(x))))


class DepthWiseAttention(FusionModule):
    """DWAtt: h_L + Σ_n softmax_n(q·k_n) v_n, for each token (depth-wise attention, §4).

    k_n = W^K p_n with p_n ∈ R^24 drawn once; v_n = LN_n(f_n(h_n)); q = 1 + elu(h_L + f_Q(h_L)).
    No dropout; values are not shared between layers.
    """

    POSITION_WIDTH = 24
    positions: torch.Tensor
    attention_sum: torch.Tensor

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        width = stack.width
        self.values = nn.ModuleList(_Bottleneck(width) for _ in range(stack.depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(stack.depth))
        self.query = _Bottleneck(width)
        self.key = nn.Linear(self.POSITION_WIDTH, width, bias=False)
        self.register_buffer("positions", torch.randn(stack.depth, self.POSITION_WIDTH))
        # Over the tokens evaluated since evaluation began, for each layer: [L].
        self.register_buffer("attention_sum", torch.zeros(stack.depth), persistent=False)

    def remove_layers(self, indices: Sequence[int]) -> None:
        for index in reversed(indices):
            del self.values[index], self.norms[index]
        self.positions = without(self.positions, indices)
        self.attention_sum = without(self.attention_sum, indices)
        super().remove_layers(indices)

    def train(self, mode: bool = True) -> "DepthWiseAttention":
        if self.training and not mode:
            self.attention_sum.zero_()
        return super().train(mode)

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index == 0:
            self._values: list[torch.Tensor] = []
            return state
        self._values.append(self.norms[index - 1](self.values[index - 1](state)))
        if index < self.depth:
            return state
        query = 1 + F.elu(state + self.query(state))
        values = torch.stack(self.__dict__.pop("_values"), dim=-2)  # [..., L, d]
        mix, attention = depth_wise_attention(query, self.key(self.positions), values)
        if not self.training:
            total = attention.detach().flatten(0, -2).sum(0)
            self.attention_sum += total.to(self.attention_sum.dtype)
        return state + mix

    def mixing_weights(self) -> torch.Tensor | None:
        """Mean attention over all tokens of the newest evaluation; h_0 has none."""
        total = self.attention_sum.sum().clamp(min=1e-12)
        return F.pad(self.attention_sum / total, (1, 0))
