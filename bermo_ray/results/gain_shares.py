"""How much of a gain something smaller gives."""

import math
from collections.abc import Mapping

import numpy as np

from bermo_ray.errors import UserError
from bermo_ray.intervals import mean_half_width, student_quantile
from bermo_ray.results.verdicts import Estimate


def estimate_gain_share(
    base: Mapping[int, float], partway: Mapping[int, float], full: Mapping[int, float]
) -> Estimate:
    """(partway − base) / (full − base), of means over the seeds that all three have, with Fieller's
    interval: the ratios ρ for which the seeds' (partway − base) − ρ · (full − base) may have the
    mean 0, by Student's t. A seed draws the same rows in all three, so that they go in pairs.

    Args:
        base: What both gains start from, by seed.
        partway: What gives a share of the gain.
        full: What gives all of it.

    Raises:
        UserError: no seed in common, or the full gain is not clearly above 0, which has no shares.
    """
    seeds = sorted(base.keys() & partway.keys() & full.keys())
    if not seeds:
        raise UserError("seeds: no seed completed in all three arms, so there is no gain to share")
    start = np.array([base[s] for s in seeds])
    part, gain = (np.array([arm[s] for s in seeds]) - start for arm in (partway, full))
    half_width = float(mean_half_width(gain))
    if not gain.mean() - half_width > 0:  # NaN of one seed
        raise UserError("the gain to be shared is not clearly above 0, so it has no shares")
    squared = student_quantile(len(seeds) - 1) ** 2 / len(seeds)
    (part_variance, covariance), (_, gain_variance) = squared * np.cov(part, gain)
    # The roots of a·ρ² − 2b·ρ + c; a > 0 as the gain is clearly above 0, so they are real.
    a = gain.mean() ** 2 - gain_variance
    b = part.mean() * gain.mean() - covariance
    c = part.mean() ** 2 - part_variance
    root = math.sqrt(max(0.0, b**2 - a * c))
    share = float(part.mean() / gain.mean())
    return Estimate(share, float((b - root) / a), float((b + root) / a), len(seeds))
