"""What layer dropping reads off the weights and the config of an encoder (docs/methods.md §3)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models.assembly import AssembledModel
from bermo_ray.models.backbone import Stack
from bermo_ray.models.layer_strategies import (
    SCORED,
    LayerScores,
    check_layer_drop,
    dropping_order,
)
from bermo_ray.trial import LayerDrop

# A model whose layers are all there -> a score for each; strategy `contribution` needs data for it.
ScoreLayers = Callable[[AssembledModel], LayerScores]


def order_layers(
    model: AssembledModel, settings: LayerDrop, score_layers: ScoreLayers | None = None
) -> list[int]:
    """Which of the model's layers are dropped, by the backbone's numbers, the first to go first.

    Raises:
        UserError: As :func:`~bermo_ray.models.layer_strategies.dropping_order`.
    """
    depth, scores = len(model.layers_left), None
    if settings.strategy == "contribution":
        check_layer_drop(settings, depth)  # before a pass over the data
        if score_layers is None:
            raise ValueError("contribution needs data to see how much each layer does")
        scores = score_layers(model)
    elif settings.strategy in SCORED:
        scores = weight_scores(model.stack)[settings.strategy]
    return [model.layers_left[layer - 1] for layer in dropping_order(settings, depth, scores)]


@torch.no_grad()
def weight_scores(stack: Stack) -> dict[str, list[float]]:
    """``variance`` and ``aggregate`` (the sum of absolute values) of each layer's final matrix."""
    matrices = [final_matrix(module)[1] for module in stack.modules]
    if stack.shared:
        matrices *= stack.depth
    return {
        "variance": [float(w.double().var(correction=0)) for w in matrices],
        "aggregate": [float(w.double().abs().sum()) for w in matrices],
    }


def final_matrix(layer: nn.Module) -> tuple[str, nn.Parameter]:
    """A block's last matrix with its name: `output.dense.weight` in BERT, `ffn.lin2.weight` in
    DistilBERT, and so on; what is written last in every family is the way out of its block."""
    matrices = [(n, p) for n, p in layer.named_parameters() if p.ndim == 2 and "bias" not in n]
    if not matrices:
        raise UserError(f"layer_drop: {type(layer).__name__} has no matrix to score it by")
    return matrices[-1]


def find_problem(config: Any, dropped_layers: Sequence[int]) -> str | None:
    """One line where a stock model of that config can't do without these layers, else None."""
    if config.model_type == "modernbert" and 1 in dropped_layers:
        return "layer_drop: ModernBERT's first layer is of another kind than the rest; keep layer 1"
    if dropped_layers and getattr(config, "num_hidden_groups", 1) > 1:
        return "layer_drop: ALBERT finds its groups by the number of layers; it needs one group"
    return None
