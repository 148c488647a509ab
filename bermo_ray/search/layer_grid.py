"""The trials that drop layers of an encoder by strategies, counts and thresholds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bermo_ray.models.layer_strategies import most_droppable
from bermo_ray.trial import Trial

SHARES = (1 / 6, 1 / 3, 1 / 2)  # of the layers: 2, 4 and 6 of 12 (layer dropping, §5)
# Similarity above which a layer goes: known of encoders where some layers, and not all, exceed it.
THRESHOLDS: dict[str, tuple[float, ...]] = {
    "embedded": (0.95,),
    "bert-base-uncased": (0.95, 0.925, 0.9),
    "xlnet-base-cased": (0.95, 0.925, 0.9),
}
# Their layers have the same weights, so that which of them go makes no difference.
SHARED_LAYERS = ("albert-base-v2",)


def drop_layers(
    base: Trial,
    depth: int,
    strategies: Sequence[str],
    counts: Sequence[int] | None = None,
    thresholds: Sequence[float] | None = None,
    epochs_per_layer: int | None = None,
) -> list[Trial]:
    """The trial with every count and strategy (of :data:`SHARED_LAYERS` ``top`` alone), then with
    strategy ``contribution``, where it is among them, by threshold.

    Args:
        base: That keeps all layers.
        depth: How many it has.
        strategies: Which layers are dropped.
        counts: How many; :data:`SHARES` of them, if not given, as far as a strategy has so many.
        thresholds: Similarity above which layers go, all at once; if not given, :data:`THRESHOLDS`
            but for a user's own rows, of which they are not known.
        epochs_per_layer: Of gradual dropping, for which there are no thresholds.
    """
    name = Path(base.backbone).name
    if name in SHARED_LAYERS:
        strategies = [strategy for strategy in strategies if strategy == "top"]
    known = THRESHOLDS.get(name, ()) if base.data.user is None else ()  # of our tasks' rows
    limits = known if thresholds is None else thresholds
    asked = counts or sorted({round(depth * share) for share in SHARES})
    drops: list[dict[str, Any]] = [
        {"strategy": strategy, "count": count, "epochs_per_layer": epochs_per_layer}
        for count in asked
        for strategy in strategies
        # Where half the layers are all that alternate ones can give, more is not a mistake.
        if counts or count <= most_droppable(strategy, depth)
    ]
    if "contribution" in strategies and epochs_per_layer is None:
        drops += [{"strategy": "contribution", "threshold": limit} for limit in limits]
    return [base.replace(layer_drop=drop) for drop in drops]
