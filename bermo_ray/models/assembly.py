"""A stock network with a fusion on it, whose layers can be removed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bermo_ray import trial as spec
from bermo_ray.models.backbone import Stack, find_stack
from bermo_ray.models.fusion import FusionModule, attach_fusion
from bermo_ray.models.pooling import attach_pooling
from bermo_ray.models.stock import attached_pooling


@dataclass
class AssembledModel:
    """A model ready to train: ``network`` is the stock one, with ``fusion`` as its submodule."""

    network: Any
    stack: Stack
    fusion: FusionModule
    layers_left: list[int]  # the backbone's layers that are still there, counted from 1
    undropped_depth: int  # layers of the backbone
    undropped_parameters: int  # parameters of all of these layers
    dropping_order: list[int] = field(default_factory=list)  # in this trial, the first to go first

    @property
    def dropped_layers(self) -> list[int]:
        """The backbone's layers that are gone, rising, counted from 1."""
        return [i for i in range(1, self.undropped_depth + 1) if i not in self.layers_left]

    def remove_layers(self, layers: Iterable[int]) -> None:
        """Removes these layers (the backbone's numbers) from network and fusion; those that are
        gone already are passed over. The network stays a stock one with fewer layers.

        What the fusion holds for the layers that stay (BERMo's α) is kept.

        Raises:
            UserError: Nothing is left for the fusion to mix.
        """
        removed = set(layers)
        indices = [i for i, layer in enumerate(self.layers_left) if layer in removed]
        if indices:
            _shorten(self.stack, indices)
            self.fusion.remove_layers(indices)
            self.layers_left = [n for n in self.layers_left if n not in removed]


def _shorten(stack: Stack, indices: Sequence[int]) -> None:
    """Takes the layers at these indices (rising, from 0) out of the encoder and its config. Where
    layers share their weights (ALBERT), the stack only gets shorter."""
    config = stack.base.config
    depth = stack.depth - len(indices)
    if not stack.shared:
        for index in reversed(indices):
            del stack.modules[index]
    if getattr(config, "layer_types", None):  # of local and global attention, in ModernBERT
        config.layer_types = [k for i, k in enumerate(config.layer_types) if i not in indices]
    config.num_hidden_layers = depth


def assemble(network: Any, settings: spec.Fusion) -> AssembledModel:
    """Puts the fusion on a stock network that has all of its layers.

    Raises:
        UserError: Fusion or network are not what can be worked with.
    """
    stack = find_stack(network)
    parameters = sum(p.numel() for p in stack.modules.parameters())
    fusion = attach_fusion(network, stack, settings)
    if mode := attached_pooling(network):
        attach_pooling(stack, mode)
    layers = list(range(1, stack.depth + 1))
    return AssembledModel(network, stack, fusion, layers, len(layers), parameters)
