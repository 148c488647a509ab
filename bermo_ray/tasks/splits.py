"""Two halves of a dev set; a module of its own because results need it without torch."""

import numpy as np

HALVES_SEED = 0  # the two halves of a dev set are the same in every trial


def split_halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of ``count`` rows in two halves, the same for every trial's seed, each rising
    (docs/methods.md §3). The first half has the odd row."""
    order = np.random.default_rng(HALVES_SEED).permutation(count)
    middle = (count + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])
