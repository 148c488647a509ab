"""Means over seeds of several metrics of a task, one below the other."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.means import mean_over_seeds, with_metric


def label_metric(table: pa.Table) -> str:
    """What the axis of a table's metric is called, in per cent.

    Args:
        table: Trials of one task.
    """
    name = str(table["metric_name"][0].as_py()) if table.num_rows else "metric"
    return "F1 of entities, %" if name == "entity_f1" else f"{name.replace('_', ' ')}, %"


def mean_metrics(table: pa.Table, by: Sequence[str], other_metrics: Mapping[str, str]) -> pa.Table:
    """:func:`mean_over_seeds` of ``metric_reported`` and, below, of each of ``other_metrics`` in
    the trials that have it; ``metric_name`` says what a row is of.

    Args:
        table: Trials.
        by: The columns that make a group, ``metric_name`` among them.
        other_metrics: Names among the trials' ``other_metrics``, each with the one to show for it.
    """
    means = [mean_over_seeds(table, by)]
    position = table.column_names.index("metric_name")
    for name, shown in other_metrics.items():
        rows = with_metric(table, name)
        rows = rows.filter(pc.is_valid(rows[name]))
        names = pa.array([shown] * rows.num_rows, pa.string())
        rows = rows.set_column(position, table.schema.field("metric_name"), names)
        means.append(mean_over_seeds(rows, by, name))
    return pa.concat_tables(means)
