"""Which layers are dropped, and in which order (docs/methods.md §3).

Layers are counted from 1, as in the paper. Nothing here needs torch.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from bermo_ray.errors import UserError, unknown
from bermo_ray.trial import LayerDrop

LayerScores = Sequence[float]  # one for each layer, the first layer's first


def _middle(total: int, count: int) -> range:
    # K=2 of 12: 6, 7; K=6: 4..9. An odd remainder keeps the extra layer at the bottom.
    below = (total - count + 1) // 2
    return range(below + 1, below + count + 1)


# Strategy -> (number of layers L, K) -> the layers dropped; those of K are among those of K+1.
POSITIONAL: dict[str, Callable[[int, int], Sequence[int]]] = {
    "top": lambda total, count: range(total - count + 1, total + 1),
    "bottom": lambda total, count: range(1, count + 1),
    "alternate_even": lambda total, count: range(total - total % 2, 0, -2)[:count],
    "alternate_odd": lambda total, count: range(total - 1 + total % 2, 0, -2)[:count],
    "symmetric": _middle,
}
# Strategy -> sign: layers are dropped by rising sign · score.
SCORED = {"variance": 1, "aggregate": 1, "contribution": -1}
STRATEGIES = (*POSITIONAL, *SCORED, "explicit")


def most_droppable(strategy: str, total: int) -> int:
    """The most layers that a strategy can drop of ``total``: all but one; half of them if it takes
    every other one.

    >>> most_droppable("top", 12), most_droppable("alternate_odd", 12)
    (11, 6)
    """
    if strategy in POSITIONAL:
        return min(total - 1, len(POSITIONAL[strategy](total, total)))
    return total - 1


def check_strategy(name: str) -> None:
    """Checks that there is a strategy of that name.

    Raises:
        UserError: There is none; with the nearest names.
    """
    if name not in STRATEGIES:
        raise UserError(unknown("layer_drop.strategy", name, STRATEGIES))


def check_layer_drop(settings: LayerDrop, total: int) -> None:
    """Checks what can be seen without weights and data, for an encoder of ``total`` layers.

    Raises:
        UserError: An unknown strategy, a layer that does not exist, or more than can be dropped.
    """
    check_strategy(settings.strategy)
    listed, count = settings.dropped_layers or (), settings.count
    if outside := [layer for layer in listed if not 1 <= layer <= total]:
        raise UserError(
            f"layer_drop.dropped_layers: got {outside[0]}, expected 1 <= layer <= {total}"
        )
    if len(listed) == total:
        raise UserError(f"layer_drop.dropped_layers: all {total} layers would go")
    if count >= total:
        raise UserError(f"layer_drop.count: got {count}, expected < {total} layers")
    if count > (most := most_droppable(settings.strategy, total)):
        raise UserError(
            f"layer_drop.count: got {count}, {settings.strategy} has only {most} of {total} "
            "layers to drop"
        )


def dropping_order(settings: LayerDrop, total: int, scores: LayerScores | None = None) -> list[int]:
    """The layers that are dropped, the first to go first.

    Of equal scores the higher layer goes first, so that ALBERT, whose layers all have the same
    weights, loses its top ones.

    Args:
        settings: Strategy and count, list or threshold.
        total: Number of layers to choose from.
        scores: One for each layer, for strategies that rank by them.

    Raises:
        UserError: As :func:`check_layer_drop`; or a threshold that every layer exceeds.
    """
    check_layer_drop(settings, total)
    strategy, count = settings.strategy, settings.count
    if settings.dropped_layers is not None:
        return sorted(settings.dropped_layers, reverse=True)
    if strategy in POSITIONAL:
        sets = [set(POSITIONAL[strategy](total, k)) for k in range(count + 1)]
        return [(after - before).pop() for before, after in pairwise(sets)]
    if scores is None:
        raise ValueError(f"{strategy} needs the layers' scores")
    ranked = sorted(range(1, total + 1), key=lambda i: (SCORED[strategy] * scores[i - 1], -i))
    if settings.threshold is None:
        return ranked[:count]
    above = [layer for layer in ranked if scores[layer - 1] > settings.threshold]
    if len(above) == total:
        raise UserError(
            f"layer_drop.threshold: all {total} layers exceed {settings.threshold:g}; the least "
            f"similar has {min(scores):.4f}"
        )
    return above


def layers_due(settings: LayerDrop, order: Sequence[int], epochs: int) -> Sequence[int]:
    """Of the layers that go in that order, those that are gone once so many epochs have passed."""
    if settings.epochs_per_layer is None:
        return order
    return order[: epochs // settings.epochs_per_layer]
