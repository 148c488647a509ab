"""How many runs of an arm diverge, and how far apart those are that do not (BERMo, Table 3)."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.record import Status
from bermo_ray.results.means import MEANS, REPORTED, mean_over_seeds, select
from bermo_ray.results.schemas import INTEGER, NUMBER, make_schema
from bermo_ray.results.verdicts import Estimate, compare_shares, estimate_share

STABILITY = pa.schema([
    *MEANS,
    *make_schema(
        ("ended", INTEGER, "trials that trained to their end, for better or worse"),
        ("share", NUMBER, "of those, how many diverged; null where none ended"),
        ("low", NUMBER, "lower end of the share's 95 % interval (Clopper and Pearson)"),
        ("high", NUMBER, "its upper end"),
    ),
])  # fmt: skip  # behind the columns that make a group


def count_diverged(table: pa.Table) -> tuple[int, int]:
    """How many trials diverged, of how many that trained to their end; one that failed did not."""
    ended = [Status(text) for text in table["status"].to_pylist() if Status(text).measured]
    return ended.count(Status.DIVERGED), len(ended)


def measure_stability(table: pa.Table, by: Sequence[str], value: str = REPORTED) -> pa.Table:
    """Of each group the share that diverged, and mean and deviation of the others.

    Args:
        table: Trials with several seeds.
        by: The columns that make a group.
        value: What mean and deviation are of.

    Returns:
        A row for each group, in the order in which they first appear, with :data:`STABILITY` behind
        the columns that make it.
    """
    means = mean_over_seeds(table, by, value)
    rows = []
    for row in means.to_pylist():
        diverged, ended = count_diverged(select(table, **{name: row[name] for name in by}))
        share = estimate_share(diverged, ended) if ended else None
        ends = ("share", "low", "high")
        values = (share.value, share.low, share.high) if share else (None, None, None)
        rows.append(row | {"ended": ended} | dict(zip(ends, values, strict=True)))
    schema = pa.schema([*(table.schema.field(name) for name in by), *STABILITY])
    return pa.Table.from_pylist(rows, schema=schema)


def compare_divergence(table: pa.Table, arm: str, first: Any, second: Any) -> Estimate:
    """By how many points of 100 more runs of the second arm diverge than of the first;
    :func:`bermo_ray.results.verdicts.compare_shares`.

    Raises:
        UserError: of an arm no trial trained to its end.
    """
    counts = {name: count_diverged(select(table, **{arm: name})) for name in (first, second)}
    for name, (_, ended) in counts.items():
        if not ended:
            raise UserError(f"{arm}: no trial with {name} trained to its end")
    return compare_shares(counts[first], counts[second], scale=100.0)
