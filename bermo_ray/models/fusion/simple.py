"""The fusions that BERMo and depth-wise attention are compared with (docs/methods.md §1)."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.models.backbone import CallLayer, Stack
from bermo_ray.models.fusion.base import FusionModule, without


class Last(FusionModule):
    """Plain BERT: h_L."""

    def states_read(self) -> tuple[int, ...] | None:
        return (self.depth,)

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        return state


class Mean(FusionModule):
    """The mean of h_1 … h_L."""

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index == 1:
            self._sum = state
        elif index > 1:
            self._sum = self._sum + state
        return self.__dict__.pop("_sum") / self.depth if index == self.depth else state


class Concat(FusionModule):
    """Σ_n W_n h_n, n = 1 … L: a linear map of the concatenated states, without bias; L·d²."""

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        bound = 1 / math.sqrt(stack.depth * stack.width)  # of nn.Linear(L·d, d)
        shape = (stack.depth, stack.width, stack.width)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

    def remove_layers(self, indices: Sequence[int]) -> None:
        self.weight.data = without(self.weight.data, indices)
        super().remove_layers(indices)

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index == 0:
            return state
        term = F.linear(state, self.weight[index - 1])
        self._sum: torch.Tensor = term if index == 1 else self._sum + term
        return self.__dict__.pop("_sum") if index == self.depth else state


class ExtraLayers(FusionModule):
    """New Transformer layers of the backbone's own kind on h_L: 1 up to 12 layers, 2 above."""

    tokenwise = False

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        self.layers = nn.ModuleList(
            _new_layer(stack.modules[-1], stack.base) for _ in range(self._layer_count())
        )

    def _layer_count(self) -> int:
        return 1 if self.depth <= 12 else 2

    def remove_layers(self, indices: Sequence[int]) -> None:
        super().remove_layers(indices)
        del self.layers[self._layer_count() :]

    def states_read(self) -> tuple[int, ...] | None:
        return (self.depth,)

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index == self.depth:
            for layer in self.layers:
                state = call_layer(layer, state)
        return state


def _new_layer(layer: nn.Module, base: Any) -> nn.Module:
    """A layer like this one with weights as the family initialises them; hooks are not copied."""
    new = copy.deepcopy(layer)
    for module in new.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        for parameter in module.parameters(recurse=False):
            parameter.__dict__.pop("_is_hf_initialized", None)
        base._init_weights(module)
    return new
