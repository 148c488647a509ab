"""Rows in the order that a reader expects; trials end in any."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def order_rows(table: pa.Table, **values: Sequence[Any]) -> pa.Table:
    """The rows sorted by columns, the first one given first: ``order_rows(table, task=("b", "a"),
    epochs=())``. Tables and figures show arms, and colour them, as they first appear.

    Args:
        table: Trials.
        values: Of each column the order of its values; others come behind, rising, nulls last.
    """
    keys: list[list[tuple[int, bool, Any]]] = []
    for name, order in values.items():
        ranks = {value: rank for rank, value in enumerate(order)}
        keys.append([
            (ranks.get(value, len(ranks)), value is None, 0 if value is None else value)
            for value in table[name].to_pylist()
        ])  # fmt: skip
    rows = sorted(range(table.num_rows), key=lambda row: [column[row] for column in keys])
    return table.take(pa.array(rows, pa.int64()))
