"""What every fusion is, and what several of them share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.models.backbone import CallLayer, Stack

# Index of a state and the state -> the state that the fusion is given.
StateRecorder = Callable[[int, torch.Tensor], torch.Tensor]


class FusionModule(nn.Module, ABC):
    """Is given h_0 (embeddings), h_1 … h_L in order, each [b, s, d] (XLNet's are [s, b, d]).

    Attributes:
        depth: L.
        share_trained: How much of training is done, from 0 to 1; 1 outside of training runs.
        recorder: If set, it sees every state first, and what it returns stands in its place.
    """

    # Whether a token's result depends on that token's states alone.
    tokenwise = True

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__()
        self.settings = settings
        self.depth = stack.depth
        self.share_trained = 1.0
        self.recorder: StateRecorder | None = None

    def extra_repr(self) -> str:
        return f"depth={self.depth}"

    def receive(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        """What the hooks call: :meth:`on_state`, behind the recorder if there is one."""
        if self.recorder is not None:
            state = self.recorder(index, state)
        return self.on_state(index, state, call_layer)

    @abstractmethod
    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        """Takes h_index and returns what goes on, of the same shape: to layer index+1 or, for h_L,
        to the head.

        ``call_layer(layer, state)`` runs a layer of the backbone's kind; with h_L only.
        """

    def states_read(self) -> tuple[int, ...] | None:
        """Which of h_1 … h_L it reads; None where its reading changes what the layers compute."""
        return tuple(range(1, self.depth + 1))

    def remove_layers(self, indices: Sequence[int]) -> None:
        """Layers at these indices (rising, from 0) leave the encoder: h_{index+1} will not come any
        more. What is held for the states that stay is kept, with its parameters' identity."""
        self.depth -= len(indices)

    def scalars(self) -> list[nn.Parameter]:
        """Parameters that train at the fusion's own learning rate, without decay."""
        return []

    def mixing_weights(self) -> torch.Tensor | None:
        """How much each state counts, [L+1], h_0 first, where the fusion has such numbers."""
        return None

    def learned_numbers(self) -> dict[str, Any]:
        """What it has learned, as fields of a :class:`~bermo_ray.record.Report`."""
        weights = self.mixing_weights()
        return {} if weights is None else {"mixing_weights": weights.tolist()}


def without(rows: torch.Tensor, indices: Sequence[int]) -> torch.Tensor:
    """The rows but for those at these indices: [n, ...] → [n − len(indices), ...]."""
    return rows[[i for i in range(len(rows)) if i not in indices]]


def open_gradually(fusion: FusionModule, weights: torch.Tensor, closed: float) -> torch.Tensor:
    """The weights, [n], with ``closed`` where a state is still shut: they open one by one from the
    last to the first over ``settings.opening_share`` of training; the last is always open."""
    share, count = fusion.settings.opening_share, len(weights)
    if fusion.share_trained >= share:
        return weights
    shut = count - 1 - math.floor(fusion.share_trained / share * (count - 1))
    return weights.masked_fill(torch.arange(count, device=weights.device) < shut, closed)
