"""Two arms of a study, compared where both were run."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bermo_ray.results.verdicts import Estimate, compare_by_seed


def common_cells(
    table: pa.Table, arm: str, first: Any, second: Any, over: Sequence[str]
) -> pa.Table:
    """The trials of two arms in those cells that both have, so that neither is the better for
    having been run where it is easy.

    Args:
        table: Trials of both arms, and of others.
        arm: The column that tells arms apart.
        first: Its value for one arm.
        second: Its value for the other.
        over: The columns that make a cell.
    """
    arms = table[arm].to_pylist()
    cells = list(zip(*(table[name].to_pylist() for name in over), strict=True))
    known = set(zip(cells, arms, strict=True))
    keep = [
        name in (first, second) and {(cell, first), (cell, second)} <= known
        for cell, name in zip(cells, arms, strict=True)
    ]
    return table.filter(pa.array(keep, pa.bool_()))


def compare_in_common_cells(
    table: pa.Table, arm: str, first: Any, second: Any, over: Sequence[str]
) -> Estimate:
    """The main effect of an ingredient, in points: :func:`compare_by_seed` of the trials in cells
    that both arms have, all cells alike; arguments as of :func:`common_cells`.

    Raises:
        UserError: no cell has both arms, or they have no seed in common.
    """
    return compare_by_seed(
        common_cells(table, arm, first, second, over), arm, first, second, over=over
    )
