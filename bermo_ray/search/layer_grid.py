"""The trials that drop layers of an encoder by strategies, counts and thresholds."""

from collections.abc import Sequence
from typing import Any

from bermo_ray.models.layer_strategies import most_droppable
from bermo_ray.trial import Trial

SHARES = (1 / 6, 1 / 3, 1 / 2)  # of the layers: 2, 4 and 6 of 12 (layer dropping, §5)


def drop_layers(
    base: Trial,
    depth: int,
    strategies: Sequence[str],
    counts: Sequence[int] | None = None,
    thresholds: Sequence[float] = (),
    epochs_per_layer: int | None = None,
) -> list[Trial]:
    """The trial with every count and strategy, then with strategy ``contribution``, where it is
    among them, by threshold.

    Args:
        base: That keeps all layers.
        depth: How many it has.
        strategies: Which layers are dropped.
        counts: How many; :data:`SHARES` of them, if not given, as far as a strategy has so many.
        thresholds: Similarity above which layers go, all at once.
        epochs_per_layer: Of gradual dropping, for which there are no thresholds.
    """
    asked = counts or sorted({round(depth * share) for share in SHARES})
    drops: list[dict[str, Any]] = [
        {"strategy": strategy, "count": count, "epochs_per_layer": epochs_per_layer}
        for count in asked
        for strategy in strategies
        # Where half the layers are all that alternate ones can give, more is not a mistake.
        if counts or count <= most_droppable(strategy, depth)
    ]
    if "contribution" in strategies and epochs_per_layer is None:
        drops += [{"strategy": "contribution", "threshold": limit} for limit in thresholds]
    return [base.replace(layer_drop=drop) for drop in drops]
