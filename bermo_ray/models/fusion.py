"""Fusion: from the states of all layers to one (methods §1).

A fusion is fed the states one by one as the encoder makes them, so inference need not keep L+1 of
them. To add one: subclass :class:`Fusion`, register it in ``FUSIONS``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown


class Fusion(nn.Module, ABC):
    """Takes h_0 (embeddings), h_1 … h_L in order; gives the state that replaces h_L.

    States are (batch, tokens, width). ``layer_count`` is L.
    """

    def __init__(self, settings: spec.Fusion, layer_count: int, width: int) -> None:
        super().__init__()
        self.settings = settings
        self.layer_count = layer_count

    @abstractmethod
    def add(self, index: int, state: torch.Tensor) -> None:
        """Takes h_index."""

    @abstractmethod
    def result(self) -> torch.Tensor:
        """The fused state of what was added since the last result."""

    def scalars(self) -> list[nn.Parameter]:
        """Parameters that train at the mask rate without decay (BERMo §4: 1e-2)."""
        return []


class Last(Fusion):
    """Plain BERT: h_L."""

    def add(self, index: int, state: torch.Tensor) -> None:
        self._last = state

    def result(self) -> torch.Tensor:
        return self.__dict__.pop("_last")


class Bermo(Fusion):
    """ELMo's mix (BERMo, Eq. 1): γ Σ_j softmax(α)_j · dropout(norm(h_j)), j = 0 … L.

    Norms (the paper's figure is lost; ``layer`` is our reading):
    ``layer`` over the width of each state; ``stack`` jointly over (layers, width) of a token;
    ``depth`` over the values of a token and feature at all layers; ``none``. No affine part.
    ``depth`` gives exactly 0 at uniform α: the values' deviations from their mean sum to 0.
    """

    EPSILON = 1e-5

    def __init__(self, settings: spec.Fusion, layer_count: int, width: int) -> None:
        super().__init__(settings, layer_count, width)
        chosen = range(layer_count + 1) if settings.layers is None else settings.layers
        self.positions = {index: place for place, index in enumerate(chosen)}
        self.alpha = nn.Parameter(torch.zeros(len(self.positions)))
        if settings.start == "xavier":
            nn.init.xavier_uniform_(self.alpha.data[None])  # as a (1, L+1) matrix: ±√(6/(L+2))
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=settings.scale)
        self._sum: torch.Tensor | None = None
        self._states: list[torch.Tensor] = []

    def extra_repr(self) -> str:
        s = self.settings
        return f"layers={list(self.positions)}, norm={s.norm}, weights={s.weights}"

    def mixing_weights(self) -> torch.Tensor:
        """What each state counts, without γ: softmax(α), or α itself if ``weights='raw'``."""
        return self.alpha.softmax(0) if self.settings.weights == "softmax" else self.alpha

    def scalars(self) -> list[nn.Parameter]:
        return [self.alpha, self.gamma]

    def add(self, index: int, state: torch.Tensor) -> None:
        if index == 0:  # a forward that broke off must not leak into this one
            self._sum, self._states = None, []
        if index not in self.positions:
            return
        if self.settings.norm in ("stack", "depth"):  # need all states before the first is scaled
            self._states.append(state)
            return
        if self.settings.norm == "layer":
            state = F.layer_norm(state, state.shape[-1:], eps=self.EPSILON)
        self._accumulate(self.positions[index], state)

    def _accumulate(self, place: int, state: torch.Tensor) -> None:
        weight = self.mixing_weights()[place]
        term = weight * F.dropout(state, self.settings.dropout, self.training)
        self._sum = term if self._sum is None else self._sum + term

    def result(self) -> torch.Tensor:
        if self._states:
            stack = torch.stack(self._states)  # (layers, batch, tokens, width)
            axes = (0, 3) if self.settings.norm == "stack" else (0,)
            mean = stack.mean(axes, keepdim=True)
            variance = stack.var(axes, correction=0, keepdim=True)
            for place, state in enumerate((stack - mean) * (variance + self.EPSILON).rsqrt()):
                self._accumulate(place, state)
        assert self._sum is not None, "result() before add()"
        fused = self.gamma * self._sum
        self._sum, self._states = None, []
        return fused


FUSIONS: dict[str, type[Fusion]] = {"last": Last, "bermo": Bermo}


def problems(settings: spec.Fusion, layer_count: int) -> list[str]:
    """What is wrong with the settings for an encoder of that many layers, a line each."""
    found = []
    if settings.name not in FUSIONS:
        found.append(unknown("fusion", settings.name, FUSIONS))
    if settings.layers is not None:
        outside = [i for i in settings.layers if not 0 <= i <= layer_count]
        if outside:
            found.append(f"fusion.layers: got {outside[0]}, expected 0 <= layer <= {layer_count}")
        if not settings.layers or list(settings.layers) != sorted(set(settings.layers)):
            found.append("fusion.layers: expected layers in rising order, each once")
    return found


def attach(model: nn.Module, layers: nn.ModuleList, settings: spec.Fusion, width: int) -> Fusion:
    """Puts a fusion on the model as its submodule ``fusion``, fed by hooks on the layers.

    The last layer's output is replaced by the fused state: pooler and head stay as they are.
    """
    if found := problems(settings, len(layers)):
        raise UserError(*found)
    fusion = FUSIONS[settings.name](settings, len(layers), width)
    model.add_module("fusion", fusion)
    layers[0].register_forward_pre_hook(_take_input(fusion), with_kwargs=True)
    for index, layer in enumerate(layers, start=1):
        layer.register_forward_hook(_take_output(fusion, index))
    return fusion


def _take_input(fusion: Fusion) -> Callable[..., None]:
    def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fusion.add(0, args[0] if args else kwargs["hidden_states"])

    return hook


def _take_output(fusion: Fusion, index: int) -> Callable[..., Any]:
    def hook(layer: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        state = output[0] if isinstance(output, tuple) else output
        fusion.add(index, state)
        if index < fusion.layer_count:
            return None
        fused = fusion.result()
        return (fused, *output[1:]) if isinstance(output, tuple) else fused

    return hook
