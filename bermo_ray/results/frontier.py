"""Parameter-efficiency frontiers: pure functions of the results table."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

GROUP = ("task", "backbone", "fusion", "method")


def frontier(table: pa.Table) -> pa.Table:
    """The non-dominated trials (remaining ↓, metric ↑) of each (task, backbone, fusion, method).

    A row stays when no other of its group has at most its remaining weights and at least its
    metric, one of them strictly better; of equal rows the first stays. Rows that did not complete,
    or lack either number, are left out. Sorted by group, then from sparse to dense; the schema is
    the table's.
    """
    usable = pc.and_(
        pc.equal(table["status"], "completed"),
        pc.and_(pc.is_finite(table["metric"]), pc.is_finite(table["remaining"])),
    )
    table = table.filter(usable)
    order = [(key, "ascending") for key in GROUP]
    order += [("remaining", "ascending"), ("metric", "descending")]
    table = table.sort_by(order)
    if table.num_rows == 0:
        return table
    keys = [table[key].combine_chunks().dictionary_encode().indices.to_numpy() for key in GROUP]
    starts = np.ones(table.num_rows, dtype=bool)
    starts[1:] = np.any([k[1:] != k[:-1] for k in keys], axis=0)
    group = np.cumsum(starts) - 1
    metric = table["metric"].to_numpy()
    # Within a group sorted by remaining, a row is on the frontier when it beats the best so far;
    # shifting each group above the one before lets one running maximum serve them all.
    span = np.ptp(metric) + 1.0
    lifted = metric + group * 2 * span
    best = np.maximum.accumulate(lifted)
    on = starts.copy()
    on[1:] |= lifted[1:] > best[:-1]
    return table.filter(pa.array(on))
