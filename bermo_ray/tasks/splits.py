"""Two halves of a dev set, and a dev set split off from the training rows; a module of its own
because it needs neither torch nor a task."""

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


def split_off(
    count: int, share: float, seed: int, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of ``count`` rows that stay, and of those that are split off; each rising.

    The rows are shuffled by ``seed``, put in order of their ``classes`` (one number per row) where
    there are any, and every 1/``share``-th goes: of a class with n rows, ``share``·n of them up or
    down to a whole number. The only row of a class stays.
    """
    order = np.random.default_rng(seed).permutation(count)
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    quota = np.floor(np.arange(count + 1) * share + 1e-9)  # rows gone before each position
    gone = order[quota[1:] > quota[:-1]]
    if classes is not None:
        _, class_of, rows_of_class = np.unique(classes, return_inverse=True, return_counts=True)
        gone = gone[rows_of_class[class_of[gone]] > 1]
    return np.setdiff1d(np.arange(count), gone), np.sort(gone)


def split_off_groups(groups: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`split_off`, but rows of one group (a number per row) stay together: groups go, in a
    shuffled order, as long as no more than ``share`` of the rows are gone."""
    numbers, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(numbers))
    gone_groups = order[np.cumsum(sizes[order]) <= share * len(groups) + 1e-9]
    gone = np.isin(group_of, gone_groups)
    return np.flatnonzero(~gone), np.flatnonzero(gone)
