"""How many epochs an arm needs: trials that differ in their number of epochs, each a run of its own
whose schedule ends with it (BERMo, Figure 5).

A seed's curve is the best value so far against the number of epochs, with straight lines between.
Arms are compared at one level, the highest that every seed of both reaches. What one arm reaches
with the most epochs would be no fair level: about half of its own seeds stay below it, so that it
could only be given the most epochs, while the other arm is credited with its lucky seeds. In
simulated studies of two equal arms with three to ten seeds that way found a difference in a fifth
to all of its answers; the level that all reach did in 3 to 5 %. Its price: seeds that are there
with the fewest epochs may have needed fewer, which draws the ratio towards 1 (with ten noisy seeds
from 0.60 to 0.77), so that :func:`describe_levels` counts them.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.results.means import REPORTED, completed, mean_over_seeds, select
from bermo_ray.results.schemas import INTEGER, NUMBER, TEXT, make_schema
from bermo_ray.results.verdicts import Estimate, compare_ratio

Curve = Mapping[float, float]  # a value by the number of epochs
_ROUNDING = 1e-12  # numbers that are equal on paper may differ in their last bit

MATCHES = make_schema(
    ("task", TEXT, ""),
    ("backbone", TEXT, ""),
    ("arm", TEXT, "whose epochs are counted"),
    ("other", TEXT, "the arm whose level is to be reached"),
    ("other_epochs", INTEGER, "the fewest with which the other arm has it"),
    ("level", NUMBER, "the best of the other arm's means over seeds, up to its most epochs"),
    ("epochs", NUMBER, "where the arm's means over seeds reach it; null: nowhere"),
    ("reached", INTEGER, "seeds whose own curve reaches it"),
    ("seeds", INTEGER, "seeds of the arm"),
)


def epochs_at(curve: Curve, level: float) -> float:
    """The number of epochs at which the best value so far reaches a level, on straight lines
    between the points; the fewest where the first point meets it, infinite where none does.

    >>> epochs_at({2: 0.5, 4: 1.0, 6: 0.7}, 0.75)
    3.0
    """
    epochs = np.array(sorted(curve), float)
    best = np.maximum.accumulate([curve[e] for e in sorted(curve)] or [-math.inf])
    reached = np.flatnonzero(best >= level - _ROUNDING)
    if len(reached) == 0:
        return math.inf
    right = int(reached[0])
    if right == 0:
        return float(epochs[0])
    share = min((level - best[right - 1]) / (best[right] - best[right - 1]), 1.0)
    return float(epochs[right - 1] + share * (epochs[right] - epochs[right - 1]))


def epochs_to_reach(table: pa.Table, level: float, value: str = REPORTED) -> dict[int, float]:
    """Of each seed the epochs that its own curve takes to a level (:func:`epochs_at`).

    Args:
        table: Trials of one arm on one task and encoder.
        level: What is to be reached.
        value: The column that is to reach it.
    """
    return {seed: epochs_at(curve, level) for seed, curve in _curves(table, value).items()}


def highest_common_level(
    table: pa.Table, arm: str, arms: Sequence[Any], value: str = REPORTED
) -> float:
    """The highest level that every seed of these arms reaches, but for seeds of which no trial
    completed.

    Raises:
        UserError: no trial completed.
    """
    curves = [c for name in arms for c in _curves(select(table, **{arm: name}), value).values()]
    ends = [max(curve.values()) for curve in curves if curve]
    if not ends:
        raise UserError(f"{arm}: no trial with {' or '.join(map(str, arms))} completed")
    return min(ends)


def compare_epochs(
    table: pa.Table,
    arm: str,
    first: Any,
    second: Any,
    value: str = REPORTED,
    level: float | None = None,
) -> Estimate:
    """How many times the first arm's epochs the second needs to the same level: of each seed
    :func:`epochs_to_reach`, then :func:`compare_ratio`. A seed that is there with the fewest epochs
    counts as needing those, which draws the ratio towards 1.

    Args:
        table: Trials of both arms on one task and encoder.
        arm: The column that tells them apart.
        first: Its value for the arm that is compared with.
        second: Its value for the arm that is compared.
        value: What is to be reached.
        level: How much of it; by default :func:`highest_common_level`.

    Raises:
        UserError: an arm has no trial or does not reach the level in some seed, or all seeds of
            both reach it with the fewest epochs already.
    """
    if level is None:
        level = highest_common_level(table, arm, (first, second), value)
    sides = {}
    for name in (first, second):
        rows = select(table, **{arm: name})
        if rows.num_rows == 0:
            raise UserError(f"{arm}: no trial with {name}, so there is nothing to compare")
        sides[name] = epochs_to_reach(rows, level, value)
        missed = sum(math.isinf(epochs) for epochs in sides[name].values())
        if missed:
            count = f"{missed} of {len(sides[name])} seeds"
            raise UserError(f"{arm}: {name} does not reach {level:.4g} in {count}")
    fewest = min(table["epochs"].to_pylist())
    if {epochs for side in sides.values() for epochs in side.values()} == {float(fewest)}:
        raise UserError(
            f"epochs: every seed of both arms reaches {level:.4g} with {fewest} already, the fewest"
        )
    return compare_ratio(sides[first], sides[second])


def describe_levels(
    table: pa.Table, arm: str, arms: Sequence[Any], scale: float = 100.0
) -> list[str]:
    """Of each task and encoder a line on the level of :func:`compare_epochs`, and how many seeds
    can't show how few epochs they need to it; none where no trial completed."""
    lines = []
    for (task, backbone), rows in split_tasks(table).items():
        try:
            level = highest_common_level(rows, arm, arms)
        except UserError:
            continue
        sides = [epochs_to_reach(select(rows, **{arm: name}), level) for name in arms]
        epochs, fewest = (
            [e for side in sides for e in side.values()],
            min(rows["epochs"].to_pylist()),
        )
        at_once = sum(e == fewest for e in epochs)
        lines.append(
            f"{task} on {Path(backbone).name}: the highest level that all reach is "
            f"{scale * level:.2f}: {at_once} of {len(epochs)} curves are there with the fewest "
            f"epochs, {fewest}" + (", which draws the ratio towards 1" if at_once else "")
        )
    return lines


def split_tasks(table: pa.Table) -> dict[tuple[str, str], pa.Table]:
    """The trials of each (task, encoder), in the order in which they first appear."""
    pairs = zip(table["task"].to_pylist(), table["backbone"].to_pylist(), strict=True)
    return {
        (task, backbone): select(table, task=task, backbone=backbone)
        for task, backbone in dict.fromkeys(pairs)
    }


def find_matches(
    table: pa.Table, arm: str, first: Any, second: Any, value: str = REPORTED
) -> pa.Table:
    """Where each arm reaches the best that the other gets to, as one would read it off a figure of
    means over seeds; no interval comes with it.

    Args:
        table: Trials of any number of tasks and encoders.
        arm: The column that tells the arms apart.
        first: Its value for one of them.
        second: Its value for the other.
        value: What is to be reached.

    Returns:
        Two rows for each task and encoder, with :data:`MATCHES`; none where the other arm has no
        completed trial.
    """
    rows = []
    for (task, backbone), trials in split_tasks(table).items():
        sides = {name: select(trials, **{arm: name}) for name in (first, second)}
        for name, other in ((first, second), (second, first)):
            row = _match_row(sides[name], sides[other], value)
            if row is not None:
                about = {"task": task, "backbone": backbone, "arm": str(name), "other": str(other)}
                rows.append(about | row)
    return pa.Table.from_pylist(rows, schema=MATCHES)


def _match_row(table: pa.Table, other: pa.Table, value: str) -> dict[str, Any] | None:
    ends = _mean_curve(other, value)
    if not ends or table.num_rows == 0:
        return None
    level = max(ends.values())
    epochs = epochs_at(_mean_curve(table, value), level)
    by_seed = epochs_to_reach(table, level, value)
    return {
        "other_epochs": min(count for count, mean in ends.items() if mean == level),
        "level": level,
        "epochs": epochs if math.isfinite(epochs) else None,
        "reached": sum(math.isfinite(e) for e in by_seed.values()),
        "seeds": len(by_seed),
    }


def describe_matches(
    matches: pa.Table,
    published: Mapping[tuple[str, str], float] | None = None,
    scale: float = 100.0,
) -> list[str]:
    """A line for each row of :func:`find_matches`.

    Args:
        matches: The rows.
        published: The paper's epochs by (task, arm).
        scale: What levels are multiplied by: 100 for per cent.
    """
    published = published or {}
    lines = []
    for row in matches.to_pylist():
        told = published.get((row["task"], row["arm"]))
        after = row["epochs"]
        reaches = "never reaches" if after is None else f"reaches after {after:.1f}"
        lines.append(
            f"{row['task']} on {Path(row['backbone']).name}: {scale * row['level']:.2f}, which "
            f"{row['other']} has after {row['other_epochs']} epochs, {row['arm']} {reaches} "
            f"(means over seeds; {row['reached']} of {row['seeds']} seeds by themselves)"
            + ("" if told is None else f"; the paper's {row['arm']} converges after {told:g}")
        )
    return lines


def _curves(table: pa.Table, value: str) -> dict[int, Curve]:
    """Each seed's values by epochs; one of which no trial completed has none."""
    curves: dict[int, dict[float, float]] = {s: {} for s in sorted(set(table["seed"].to_pylist()))}
    done = completed(table, value)
    columns = (done[name].to_pylist() for name in ("seed", "epochs", value))
    for seed, epochs, number in zip(*columns, strict=True):
        curves[seed][epochs] = number
    return dict(curves)


def _mean_curve(table: pa.Table, value: str) -> Curve:
    rows = mean_over_seeds(table, ("epochs",), value).to_pylist()
    return {row["epochs"]: row["mean"] for row in rows if row["mean"] is not None}
