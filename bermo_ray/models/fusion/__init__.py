"""Fusion: from the states of all layers to one (docs/methods.md §1).

A fusion is given the states one by one as the encoder makes them, so that inference need not keep
L+1 of them. To add one: subclass :class:`FusionModule` with its one method, ``on_state``, and name
it in :data:`FUSIONS`. Shapes: b rows, s tokens, d the width, n states, L layers.
"""

from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown
from bermo_ray.models.backbone import Stack, on_states
from bermo_ray.models.fusion.base import FusionModule
from bermo_ray.models.fusion.bermo import Bermo, bermo_mix
from bermo_ray.models.fusion.dwatt import DepthWiseAttention, depth_wise_attention
from bermo_ray.models.fusion.every_layer import EveryLayer
from bermo_ray.models.fusion.simple import Concat, ExtraLayers, Last, Mean

__all__ = [
    "FUSIONS",
    "Bermo",
    "FusionModule",
    "attach_fusion",
    "bermo_mix",
    "depth_wise_attention",
    "find_problems",
]

FUSIONS: dict[str, type[FusionModule]] = {
    "last": Last,
    "bermo": Bermo,
    "mean": Mean,
    "concat": Concat,
    "dwatt": DepthWiseAttention,
    "extra_layers": ExtraLayers,
    "every_layer": EveryLayer,
}


def find_problems(settings: spec.Fusion, depth: int) -> list[str]:
    """What is wrong with the settings for an encoder of ``depth`` layers, a line each."""
    problems, mixed = [], settings.mixed_states
    if settings.name not in FUSIONS:
        problems.append(unknown("fusion", settings.name, FUSIONS))
    if mixed is not None:
        if outside := [i for i in mixed if not 0 <= i <= depth]:
            problems.append(
                f"fusion.mixed_states: got {outside[0]}, expected 0 <= state <= {depth}"
            )
        if not mixed or list(mixed) != sorted(set(mixed)):
            problems.append("fusion.mixed_states: expected states in rising order, each once")
    return problems


def attach_fusion(network: nn.Module, stack: Stack, settings: spec.Fusion) -> FusionModule:
    """Puts a fusion on the network as its submodule ``fusion``, fed by hooks on the layers.

    What the last layer gives is replaced by the fused state: pooler and head stay as they are.

    Raises:
        UserError: As :func:`find_problems` says.
    """
    if problems := find_problems(settings, stack.depth):
        raise UserError(*problems)
    fusion = FUSIONS[settings.name](settings, stack)
    network.add_module("fusion", fusion)
    on_states(stack, fusion.receive)
    return fusion
