"""The trials that reach the same sizes by dropping layers, pruning weights, or both."""

from collections.abc import Sequence
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.trial import Trial

_LEARNED = ("l0", "soft_movement")  # methods whose multiplier is learned, so that a density is met
_UNPRUNED = 0.995  # densities from here on are not worth a mask


def mix_sizes(
    base: Trial,
    depth: int,
    sizes: Sequence[float],
    counts: Sequence[int],
    strategy: str = "top",
    method: str = "l0",
) -> list[Trial]:
    """The trial at every size with every number K of layers dropped: of L layers L − K stay, pruned
    to size · L / (L − K). A size that so few layers can't have is left out.

    Args:
        base: With nothing dropped or pruned.
        depth: How many layers it has, L.
        sizes: Shares of the encoder's prunable weights to be left.
        counts: Layers dropped.
        strategy: Which layers are dropped.
        method: How weights are pruned.

    Raises:
        UserError: a size, a count or a method that can't be.
    """
    if method not in _LEARNED:
        raise UserError(f"method: got {method!r}, expected one that learns λ: l0 or soft_movement")
    if bad := [size for size in sizes if not 0 < size < 1]:
        raise UserError(f"sizes: got {bad[0]:g}, expected 0 < size < 1")
    if odd := [count for count in counts if not 0 <= count < depth]:
        raise UserError(f"counts: got {odd[0]}, expected 0 <= count < {depth} layers")
    trials = []
    for size in sizes:
        for count in counts:
            density = size * depth / (depth - count)
            if density <= 1 + 1e-6:
                drop = {"strategy": strategy, "count": count} if count else None
                pruning = _prune_to(density, method) if density < _UNPRUNED else None
                trials.append(base.replace(layer_drop=drop, pruning=pruning))
    return trials


def _prune_to(density: float, method: str) -> dict[str, Any]:
    pruning: dict[str, Any] = {"method": method, "target_density": density, "flat_end": 2}
    if method == "soft_movement":
        pruning["initial_threshold"] = 0.1  # τ is constant: the density alone changes
    return pruning
