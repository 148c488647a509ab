"""Which trial of a study is the one to take."""

from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.results.frontier import dense_levels, frontier, usable

KEPT_SHARE = 0.99  # of the dense baseline's metric


def pick_best_trial(table: pa.Table, share: float = KEPT_SHARE) -> tuple[dict[str, Any], str]:
    """The trial on the frontier with the fewest remaining weights that keeps a share of its dense
    baseline's metric; where none does, or there is no baseline, that with the best metric. The
    metric is that on the rows that choose, ``metric_selection``.

    Args:
        table: Trials of one task and encoder.
        share: Of the dense baseline's metric.

    Returns:
        Its row, and the rule in a sentence.

    Raises:
        UserError: several tasks or encoders, or no trial that completed.
    """
    for column in ("task", "backbone"):
        if len(set(table[column].to_pylist())) > 1:
            raise UserError(f"{column}: trials of several can't be compared; the best is of one")
    table = usable(table)
    baselines = dict(zip(table["run_id"].to_pylist(), dense_levels(table).tolist(), strict=True))
    rows = frontier(table).to_pylist()
    if not rows:
        raise UserError("no trial completed with a metric that is better than a constant answer")
    # A comparison with the NaN of a missing baseline is false.
    kept = [r for r in rows if r["metric_selection"] >= share * baselines[r["run_id"]]]
    if not kept:
        best = max(rows, key=lambda row: row["metric_selection"])
        return best, "the best metric on the rows that choose; there is no smaller model as good"
    best = min(kept, key=lambda row: (row["remaining"], -row["metric_selection"]))
    kept_metric = f"keep {share:.0%} of the dense baseline's metric on the rows that choose"
    return best, f"the fewest weights that {kept_metric}"
