"""Which rows chose the trials of a table, and which ones measured them."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SHARES_OF_ROWS = ("accuracy",)  # metrics whose noise over rows is binomial
_NORMAL_95 = 1.96  # standard errors to either side


def describe_choice(trials: pa.Table) -> str:
    """On which rows these trials were chosen and measured, in words: ``chosen on one half of dev,
    measured on the other``; where ``whole_dev`` gave up the halves and there is no test split,
    ``chosen and measured on the same rows``.

    Args:
        trials: Rows of the results; ``trial_json`` and ``metric_test`` are read.
    """
    is_whole = np.array(
        [_takes_all_of_dev(text) for text in trials["trial_json"].to_pylist()], bool
    )
    is_tested = pc.is_valid(trials["metric_test"]).to_numpy()
    if (is_whole & ~is_tested).any():
        return "chosen and measured on the same rows"
    chosen = "chosen on dev" if is_whole.any() else "chosen on one half of dev"
    on_test = len(is_tested) > 0 and is_tested.all()
    return f"{chosen}, measured on the {'test split' if on_test else 'other'}"


def describe_rows(trials: pa.Table) -> list[str]:
    """How far the best accuracy of these trials would be off on other rows, in a line; nothing for
    metrics that are no shares of right answers, or where the rows were not counted."""
    shares = trials.filter(pc.is_in(trials["metric_name"], pa.array(_SHARES_OF_ROWS)))
    rows, best = pc.min(shares["rows_reported"]).as_py(), pc.max(shares["metric_reported"]).as_py()
    if rows is None or best is None or best >= 1:
        return []
    points = 100 * _NORMAL_95 * math.sqrt(best * (1 - best) / rows)
    return [f"measured on {rows} rows: {best:.3f} may be {points:.1f} points off on others (95 %)"]


def _takes_all_of_dev(trial_json: str | None) -> bool:
    return bool(json.loads(trial_json or "{}").get("data", {}).get("whole_dev"))
