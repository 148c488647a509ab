"""Intervals of means over few seeds, by Student's and Welch's t; of 95 % if not said otherwise."""

import math
from typing import Any

import numpy as np

CONFIDENCE = 0.95


def student_quantile(degrees: Any, confidence: float = CONFIDENCE) -> Any:
    """How many standard errors half of an interval is, with so many degrees of freedom."""
    from scipy.special import stdtrit

    return stdtrit(degrees, (1 + confidence) / 2)


def mean_half_width(values: np.ndarray) -> np.ndarray:
    """Half of the interval of the mean over the first axis, by Student's t; NaN of one value."""
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    half_width: np.ndarray = (
        student_quantile(count - 1) * np.std(values, axis=0, ddof=1) / math.sqrt(count)
    )
    return half_width


def welch_half_width(
    first: np.ndarray, second: np.ndarray, confidence: float = CONFIDENCE
) -> float:
    """Half of the interval of the difference of two means, by Welch's t; NaN where one of them is
    of one value."""
    if min(len(first), len(second)) < 2:
        return math.nan
    errors = [float(values.var(ddof=1)) / len(values) for values in (first, second)]
    if sum(errors) == 0:
        return 0.0
    degrees = sum(errors) ** 2 / sum(
        e**2 / (len(v) - 1) for e, v in zip(errors, (first, second), strict=True)
    )
    return float(student_quantile(degrees, confidence)) * math.sqrt(sum(errors))
