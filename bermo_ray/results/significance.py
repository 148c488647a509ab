"""Whether two models differ: McNemar's test on what each got right."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.tasks.metrics import exact_match
from bermo_ray.tasks.task import Task


@dataclass(frozen=True)
class McNemar:
    """``only_first`` and ``only_second``: examples that one of two models alone got right."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """The exact test on two arrays of right or wrong, an entry for each example.

    Under the null either model is as likely to be the one that is right where they differ:
    Binomial(n, ½). Where they never differ, p is 1.

    Raises:
        UserError: the two are not of the same examples.
    """
    from scipy.stats import binomtest

    if len(first) != len(second):
        raise UserError(f"mcnemar: {len(first)} examples against {len(second)}")
    one = int(np.sum(first & ~second))
    two = int(np.sum(second & ~first))
    p = float(binomtest(one, one + two).pvalue) if one + two else 1.0
    return McNemar(one, two, p)


def right(predictions: pa.Table, task: Task, rows: np.ndarray | None = None) -> np.ndarray | None:
    """Which examples are right: rows of a classification, words of a tagging, hidden pieces,
    questions answered exactly. None for a regression, which knows no right and wrong.

    ``rows``: places in the table of those that count; all, if not given.
    """
    if task.head == "regression":
        return None
    table = predictions if rows is None else predictions.take(rows)
    predicted, target = (table[name].to_pylist() for name in ("predicted", "target"))
    pairs = list(zip(predicted, target, strict=True))
    if task.head == "span":
        return np.array([exact_match([p], [t]) == 1.0 for p, t in pairs], dtype=bool)
    if task.head == "sequence":
        return np.array([p == t for p, t in pairs], dtype=bool)
    return np.array([a == b for p, t in pairs for a, b in zip(p, t, strict=True)], dtype=bool)
