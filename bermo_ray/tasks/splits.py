"""Two halves of a dev set; a module of its own because it needs neither torch nor a task."""

from collections.abc import Sequence

import numpy as np

HALVES_SEED = 0  # the two halves of a dev set are the same in every trial


def split_halves(
    count: int, classes: Sequence[int] | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of ``count`` rows in two halves, the same for every trial's seed, each rising
    (docs/methods.md §3).

    The rows are shuffled, put in order of their ``classes`` (one per row) where there are any, and
    dealt to the halves in turn. So the halves differ by at most one row of each class and by at
    most one in all, which the first half has.
    """
    order = np.random.default_rng(HALVES_SEED).permutation(count)
    if classes is not None:
        order = order[np.argsort(np.asarray(classes)[order], kind="stable")]
    return np.sort(order[0::2]), np.sort(order[1::2])
