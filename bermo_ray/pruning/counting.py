"""How many parameters remain (docs/methods.md §2, Counting)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bermo_ray.pruning.pruner import KeptWeights, Pruner, prunable_matrices


@dataclass(frozen=True)
class ParameterCount:
    """Parameters that remain, by three readings: ``remaining``, ``density`` and ``nonzero``."""

    kept: int  # weights of the masked matrices whose mask is above 0
    prunable: int  # weights of the masked matrices
    encoder: int  # all parameters of the encoder's layers, biases and norms too
    undropped: int  # the same before any layer was dropped
    nonzero: int  # of the network with its head, as it would be exported
    total: int  # of the network with its head, zeros too

    @property
    def remaining(self) -> float:
        """(kept + biases and norms of the layers) / all of the layers: the papers' figure. What
        went with a dropped layer counts as gone."""
        return (self.kept + self.encoder - self.prunable) / self.undropped

    @property
    def density(self) -> float:
        """kept / prunable; 1 where nothing is prunable."""
        return self.kept / self.prunable if self.prunable else 1.0


@torch.no_grad()
def count_parameters(
    network: nn.Module,
    modules: nn.ModuleList,
    masks: Pruner | Sequence[KeptWeights] | None = None,
    undropped_parameters: int | None = None,
) -> ParameterCount:
    """What remains of a network, read off the evaluation masks; without masks, off the weights.

    Args:
        network: With its head.
        modules: Its encoder's layers.
        masks: The masks or, where they are folded into the weights, what they had kept.
        undropped_parameters: Of the layers before any of them was dropped; None: none was.
    """
    if isinstance(masks, Pruner) and masks.state == "attached":
        with masks.frozen():
            matrices = masks.kept_by_matrix()
            nonzero = _count_nonzero(network)
    else:
        nonzero = _count_nonzero(network)
        if masks is None or isinstance(masks, Pruner):
            weights = prunable_matrices(modules).items()
            matrices = [KeptWeights(n, int(w.count_nonzero()), w.numel()) for n, w in weights]
        else:
            matrices = list(masks)
    encoder = sum(p.numel() for p in modules.parameters())
    return ParameterCount(
        kept=sum(matrix.kept for matrix in matrices),
        prunable=sum(matrix.size for matrix in matrices),
        encoder=encoder,
        undropped=encoder if undropped_parameters is None else undropped_parameters,
        nonzero=nonzero,
        total=sum(p.numel() for p in network.parameters()),
    )


def _count_nonzero(network: nn.Module) -> int:
    return sum(int(p.count_nonzero()) for p in network.parameters())
