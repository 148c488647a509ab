"""What dropping layers saves of the time of inference (layer dropping, Table 3), from times that
were measured in rounds: :data:`bermo_ray.training.inference_time.INFERENCE_TIMES`."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.results.verdicts import Estimate

_CONFIDENCE = 0.95
Times = dict[tuple[str, int], float]  # (encoder, layers left) -> seconds


def time_by_depth(times: pa.Table) -> Times:
    """The median time of each encoder and number of layers, over rounds."""
    by_depth: dict[tuple[str, int], list[float]] = {}
    for row in times.to_pylist():
        by_depth.setdefault((row["backbone"], row["layers_left"]), []).append(row["seconds"])
    return {key: statistics.median(values) for key, values in by_depth.items()}


def estimate_time_saved(times: pa.Table, share_dropped: float) -> Estimate:
    """Per cent of the undropped model's time that is saved without this share of the layers: the
    median over rounds, of each the mean over encoders. Within a round the two models are compared
    with each other.

    Raises:
        UserError: no encoder was measured with so many layers left.
    """
    seconds = {
        (row["backbone"], row["layers_left"], row["round"]): row["seconds"]
        for row in times.to_pylist()
    }
    saved: dict[int, list[float]] = {}
    for backbone in dict.fromkeys(times["backbone"].to_pylist()):
        depth = max(left for name, left, _ in seconds if name == backbone)
        kept = depth - depth * share_dropped
        for name, left, number in seconds:
            if name == backbone and math.isclose(left, kept):
                share = 1 - seconds[name, left, number] / seconds[name, depth, number]
                saved.setdefault(number, []).append(100 * share)
    if not saved:
        raise UserError(f"inference time: no model without {share_dropped:.0%} of its layers")
    return median_estimate([statistics.fmean(of_round) for of_round in saved.values()], "rounds")


def median_estimate(values: Sequence[float], unit: str) -> Estimate:
    """The median with an interval between two of the values, whatever their distribution: those
    between which the true median lies with at least 95 % (sign test). None of five or fewer.

    >>> median_estimate([3, 1, 2, 5, 4, 6], "rounds").high
    6.0
    """
    from scipy.stats import binom

    ordered, count = np.sort(np.asarray(values, float)), len(values)
    middle = float(np.median(ordered))
    # The true median is outside of the k-th smallest and largest with 2·P(Binomial(n, ½) < k).
    k = int(binom.ppf((1 - _CONFIDENCE) / 2, count, 0.5))
    if k < 1:
        return Estimate(middle, None, None, count, unit)
    return Estimate(middle, float(ordered[k - 1]), float(ordered[count - k]), count, unit)
