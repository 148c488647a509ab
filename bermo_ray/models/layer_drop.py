"""Which layers go (methods §3). Layers are counted from 1, as in the paper."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown
from bermo_ray.models.backbone import Stack

Scores = Sequence[float]  # one for each layer, the first layer's first


def _middle(total: int, count: int) -> range:
    # K=2 of 12: 6, 7; K=6: 4..9. An odd remainder keeps the extra layer at the bottom.
    below = (total - count + 1) // 2
    return range(below + 1, below + count + 1)


# strategy -> (number of layers L, K) -> the layers dropped; those of K are among those of K+1
POSITIONAL: dict[str, Callable[[int, int], Sequence[int]]] = {
    "top": lambda total, count: range(total - count + 1, total + 1),
    "bottom": lambda total, count: range(1, count + 1),
    "alternate_even": lambda total, count: range(total - total % 2, 0, -2)[:count],
    "alternate_odd": lambda total, count: range(total - 1 + total % 2, 0, -2)[:count],
    "symmetric": _middle,
}
# strategy -> sign: layers go by rising sign · score
SCORED = {"variance": 1, "aggregate": 1, "contribution": -1}
STRATEGIES = (*POSITIONAL, *SCORED, "explicit")


def most(strategy: str, total: int) -> int:
    """The most layers a strategy can drop of that many: all but one, of alternate ones half.

    >>> most("top", 12), most("alternate_odd", 12)
    (11, 6)
    """
    if strategy in POSITIONAL:
        return min(total - 1, len(POSITIONAL[strategy](total, total)))
    return total - 1


def known(strategy: str) -> None:
    """Raises:
    UserError: there is no strategy of that name.
    """
    if strategy not in STRATEGIES:
        raise UserError(unknown("layer_drop.strategy", strategy, STRATEGIES))


def check(settings: spec.LayerDrop, total: int) -> None:
    """What can be seen without weights and data.

    Raises:
        UserError: an unknown strategy, a layer that does not exist, or more than can go.
    """
    name, count = settings.strategy, settings.count
    known(name)
    if outside := [i for i in settings.layers or () if not 1 <= i <= total]:
        raise UserError(f"layer_drop.layers: got {outside[0]}, expected 1 <= layer <= {total}")
    if len(settings.layers or ()) == total:
        raise UserError(f"layer_drop.layers: all {total} layers would go")
    if count >= total:
        raise UserError(f"layer_drop.count: got {count}, expected < {total} layers")
    if count > most(name, total):
        raise UserError(
            f"layer_drop: {name} has only {most(name, total)} of {total} layers to drop, "
            f"got count={count}"
        )


def order(settings: spec.LayerDrop, total: int, scores: Scores | None = None) -> list[int]:
    """The layers that go, the first to go first; ``scores`` for strategies that rank by them.

    Of equal scores the higher layer goes first, so that ALBERT, whose layers all have the same
    weights, loses its top ones.

    Raises:
        UserError: as :func:`check`; or a threshold that every layer exceeds.
    """
    check(settings, total)
    name, count = settings.strategy, settings.count
    if settings.layers is not None:
        return sorted(settings.layers, reverse=True)
    if name in POSITIONAL:
        sets = [set(POSITIONAL[name](total, k)) for k in range(count + 1)]
        return [(after - before).pop() for before, after in pairwise(sets)]
    if scores is None:
        raise ValueError(f"{name} needs the layers' scores")
    ranked = sorted(range(1, total + 1), key=lambda i: (SCORED[name] * scores[i - 1], -i))
    if settings.threshold is None:
        return ranked[:count]
    above = [i for i in ranked if scores[i - 1] > settings.threshold]
    if len(above) == total:
        raise UserError(
            f"layer_drop.threshold: all {total} layers exceed {settings.threshold:g}; the least "
            f"similar has {min(scores):.4f}"
        )
    return above


def due(settings: spec.LayerDrop, going: Sequence[int], epochs: int) -> Sequence[int]:
    """Of the layers that go in that order, those gone once so many epochs have passed."""
    return going if settings.every is None else going[: epochs // settings.every]


@torch.no_grad()
def weight_scores(stack: Stack) -> dict[str, list[float]]:
    """Variance, and sum of absolute values, of each layer's final matrix (methods §3)."""
    last = [final_matrix(module)[1] for module in stack.modules]
    if stack.shared:
        last *= stack.depth
    return {
        "variance": [float(w.double().var(correction=0)) for w in last],
        "aggregate": [float(w.double().abs().sum()) for w in last],
    }


def final_matrix(layer: nn.Module) -> tuple[str, nn.Parameter]:
    """A block's last matrix by name: `output.dense.weight` in BERT, `ffn.lin2.weight` in
    DistilBERT, and so on; what is written last in every family is the way out of its block."""
    matrices = [(n, p) for n, p in layer.named_parameters() if p.ndim == 2 and "bias" not in n]
    if not matrices:
        raise UserError(f"layer_drop: {type(layer).__name__} has no matrix to score it by")
    return matrices[-1]


def remove(stack: Stack, places: Sequence[int]) -> None:
    """Takes the layers at these places (from 0) out of the model, which stays a stock one with
    fewer layers. Where layers share their weights (ALBERT), the stack only gets shorter."""
    config = stack.base.config
    left = stack.depth - len(places)
    if not stack.shared:
        for place in sorted(places, reverse=True):
            del stack.modules[place]
    if getattr(config, "layer_types", None):  # of local and global attention, in ModernBERT
        config.layer_types = [k for i, k in enumerate(config.layer_types) if i not in places]
    config.num_hidden_layers = left


def problem(config: Any, gone: Sequence[int]) -> str | None:
    """One line where a stock model can't do without these layers."""
    if config.model_type == "modernbert" and 1 in gone:
        return "layer_drop: ModernBERT's first layer is of another kind than the rest; keep layer 1"
    if gone and getattr(config, "num_hidden_groups", 1) > 1:
        return "layer_drop: ALBERT finds its groups by the number of layers; it needs one group"
    return None
