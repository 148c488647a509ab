"""A mix of all earlier states before every layer (BERMo's future work)."""

from collections.abc import Sequence

import torch
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.models.backbone import CallLayer, Stack
from bermo_ray.models.fusion.base import FusionModule, open_gradually, without


class EveryLayer(FusionModule):
    """BERMo's future work: each layer's input, and the head's, is a mix of all states before it.

    x_k = Σ_{j ≤ k} A_kj h_j, (L+1)(L+2)/2 scalars. A starts as the identity, so that a pretrained
    encoder starts as it was; raw weights, because a softmax can't be the identity.
    """

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        rows = [torch.zeros(k + 1) for k in range(stack.depth + 1)]
        for row in rows:
            row[-1] = 1.0
        self.mixes = nn.ParameterList(nn.Parameter(row) for row in rows)

    def remove_layers(self, indices: Sequence[int]) -> None:
        """Layer g turns into the identity: h_g becomes its input, x_{g−1} = Σ A_{g−1,j} h_j."""
        for index in reversed(indices):
            removed = self.mixes[index].data
            for row in self.mixes[index + 1 :]:
                weight, rest = row.data[index + 1], without(row.data, [index + 1])
                rest[: index + 1] += weight * removed
                row.data = rest
            self.mixes = nn.ParameterList(row for i, row in enumerate(self.mixes) if i != index)
        super().remove_layers(indices)

    def scalars(self) -> list[nn.Parameter]:
        return list(self.mixes)

    def states_read(self) -> tuple[int, ...] | None:
        return None  # what a layer gives changes as the mix of its inputs does

    def mixing_weights(self) -> torch.Tensor:
        """Of the head's input, the last row of A."""
        return self.mixes[-1].detach()

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index == 0:
            self._states: list[torch.Tensor] = []
        self._states.append(state)
        mix = open_gradually(self, self.mixes[index], 0.0)
        out = mix[index] * state
        for weight, earlier in zip(mix[:-1], self._states, strict=False):
            out = torch.addcmul(out, weight, earlier)
        if index == self.depth:
            self._states = []
        return out.to(state.dtype)
