"""Whether two models differ: McNemar's test on what each got right."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError

# A run's id -> its answers on the dev set; None where they are not to be had.
Predictions = Callable[[str], pa.Table | None]


@dataclass(frozen=True)
class McNemar:
    """``only_first`` and ``only_second``: examples that one of two models alone got right."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """The exact test on two arrays of right or wrong, an entry for each example.

    Under the null hypothesis either model is as likely to be the one that is right where they
    differ: Binomial(n, ½). Where they never differ, p is 1.

    Raises:
        UserError: the two are not of the same examples.
    """
    from scipy.stats import binomtest

    if len(first) != len(second):
        raise UserError(f"mcnemar: {len(first)} examples against {len(second)}")
    only_first = int(np.sum(first & ~second))
    only_second = int(np.sum(second & ~first))
    differing = only_first + only_second
    p_value = float(binomtest(only_first, differing).pvalue) if differing else 1.0
    return McNemar(only_first, only_second, p_value)


def right_or_wrong(predictions: pa.Table, rows: np.ndarray | None = None) -> np.ndarray | None:
    """Which examples are right: rows of a classification, words of a tagging, hidden pieces,
    questions answered exactly. None for a regression, which knows no right and wrong.

    Args:
        predictions: Of a trial; only its column ``right`` is read.
        rows: Indices into the table of the rows that count; all, if not given.
    """
    right = predictions["right"] if rows is None else predictions["right"].take(pa.array(rows))
    if right.null_count:
        return None
    if pa.types.is_list(right.type):  # several examples per row
        right = pc.list_flatten(right)
    return right.to_numpy().astype(bool)


def verification_rows(predictions: pa.Table) -> np.ndarray:
    """Indices of the predictions on the verification half of the dev set, which chose nothing."""
    return np.flatnonzero(predictions["verifies"].to_numpy())


def compare_predictions(first: pa.Table | None, second: pa.Table | None) -> float | None:
    """McNemar's p-value of two trials' predictions on the verification half of the dev set; None
    for a regression, and where one of them has none."""
    if first is None or second is None:
        return None
    sides = [right_or_wrong(answers, verification_rows(answers)) for answers in (first, second)]
    if sides[0] is None or sides[1] is None:
        return None
    return mcnemar(sides[0], sides[1]).p_value
