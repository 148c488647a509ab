"""How a trial ended."""

import math

from bermo_ray.record import Report, Status
from bermo_ray.trial import Penalized, Pruning

DENSITY_TOLERANCE = 0.005  # a learned multiplier that lands nearer than this has met its target


def judge(report: Report, exploded: bool, pruning: Pruning | None) -> tuple[Status, str]:
    """Status and reason of a trial's last report: diverged when the loss became non-finite
    (``exploded``: the gradient did) or the metric is no better than a constant answer's, else
    completed. A target density that was missed is a reason too, but no divergence."""
    reasons = []
    if exploded or not math.isfinite(report.loss):
        reasons.append(f"non-finite loss at step {report.step}")
    elif not report.metric > report.constant_metric:  # NaN too
        reasons.append(f"metric {report.metric:.4f} is no better than a constant answer")
    status = Status.DIVERGED if reasons else Status.COMPLETED
    target = pruning.target_density if isinstance(pruning, Penalized) else None
    if target is not None and abs(report.density - target) > DENSITY_TOLERANCE:
        reasons.append(f"density {report.density:.4f} missed its target {target:g}")
    return status, "; ".join(reasons)
