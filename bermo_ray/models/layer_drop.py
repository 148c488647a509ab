"""Which layers go (methods §3). Layers are counted from 1, as in the paper."""

from collections.abc import Callable
from typing import Any

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown
from bermo_ray.models.backbone import Stack


def _middle(total: int, count: int) -> range:
    # K=2 of 12: 6, 7; K=6: 4..9. An odd remainder keeps the extra layer at the bottom.
    below = (total - count + 1) // 2
    return range(below + 1, below + count + 1)


def _highest(total: int, count: int, parity: int) -> list[int]:
    return [i for i in range(1, total + 1) if i % 2 == parity][::-1][:count]


# strategy -> (number of layers L, K) -> the layers dropped
STRATEGIES: dict[str, Callable[[int, int], list[int]]] = {
    "top": lambda total, count: list(range(total - count + 1, total + 1)),
    "bottom": lambda total, count: list(range(1, count + 1)),
    "alternate_even": lambda total, count: sorted(_highest(total, count, 0)),
    "alternate_odd": lambda total, count: sorted(_highest(total, count, 1)),
    "symmetric": lambda total, count: list(_middle(total, count)),
}


def dropped(settings: spec.LayerDrop, layer_count: int) -> list[int]:
    """The layers that go, rising.

    Raises:
        UserError: an unknown strategy, a layer that does not exist, or more than can go.
    """
    if settings.strategy == "explicit":
        chosen = sorted(settings.layers or ())
        if outside := [i for i in chosen if not 1 <= i <= layer_count]:
            raise UserError(
                f"layer_drop.layers: got {outside[0]}, expected 1 <= layer <= {layer_count}"
            )
        if len(chosen) == layer_count:
            raise UserError(f"layer_drop.layers: all {layer_count} layers would go")
        return chosen
    if settings.strategy not in STRATEGIES:
        raise UserError(unknown("layer_drop.strategy", settings.strategy, STRATEGIES))
    if settings.count >= layer_count:
        raise UserError(f"layer_drop.count: got {settings.count}, expected < {layer_count} layers")
    chosen = STRATEGIES[settings.strategy](layer_count, settings.count)
    if len(chosen) < settings.count:
        raise UserError(
            f"layer_drop: {settings.strategy} has only {len(chosen)} of {layer_count} layers "
            f"to drop, got count={settings.count}"
        )
    return chosen


def apply(stack: Stack, settings: spec.LayerDrop) -> list[int]:
    """Takes the layers out of the model, which stays a stock one with fewer layers.

    Where layers share their weights (ALBERT), the stack only gets shorter.
    """
    gone = dropped(settings, stack.depth)
    config = stack.base.config
    if found := problem(config, gone):
        raise UserError(found)
    if not stack.shared:
        for index in reversed(gone):
            del stack.modules[index - 1]
    if getattr(config, "layer_types", None):  # of local and global attention, in ModernBERT
        kinds = enumerate(config.layer_types, 1)
        config.layer_types = [kind for index, kind in kinds if index not in gone]
    config.num_hidden_layers = stack.depth - len(gone)
    return gone


def problem(config: Any, gone: list[int]) -> str | None:
    """One line where a stock model can't do without these layers."""
    if config.model_type == "modernbert" and 1 in gone:
        return "layer_drop: ModernBERT's first layer is of another kind than the rest; keep layer 1"
    return None
