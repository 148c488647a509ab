"""Trials of a grid: columns out of their settings, groups of them, means over seeds."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.intervals import mean_half_width
from bermo_ray.record import Status
from bermo_ray.results.schemas import INTEGER, NUMBER, make_schema

REPORTED = "metric_reported"  # what is compared where nothing else is said
MEANS = make_schema(
    ("seeds", INTEGER, "trials that completed with the value measured: what the mean is of"),
    ("diverged", INTEGER, "trials that diverged, which the mean leaves out"),
    ("mean", NUMBER, "over seeds; null where none completed"),
    ("deviation", NUMBER, "standard deviation over seeds; null of one"),
    ("interval", NUMBER, "half of the mean's 95 % interval, by t; null of one"),
)  # behind the columns that make a group


def with_settings(table: pa.Table, **fields: str) -> pa.Table:
    """The table with columns out of the trials' settings: ``with_settings(table,
    shots="data.shots", norm="fusion.norm")``; null where a trial has no such field or section. A
    column of the same name is replaced."""
    trials = [json.loads(text) for text in table["trial_json"].to_pylist()]
    for name, field in fields.items():
        values = pa.array([_find(trial, field) for trial in trials])
        if name in table.column_names:
            table = table.drop_columns(name)
        table = table.append_column(name, values)
    return table


def _find(trial: Mapping[str, Any], field: str) -> Any:
    value: Any = trial
    for name in field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return json.dumps(value) if isinstance(value, list | dict) else value


def with_metric(table: pa.Table, name: str) -> pa.Table:
    """The table with one of ``other_metrics`` as a column of its own, such as ``test_perplexity``;
    null where it was not measured."""
    maps = [dict(entries or ()) for entries in table["other_metrics"].to_pylist()]
    return table.append_column(name, pa.array([m.get(name) for m in maps], pa.float64()))


def select(table: pa.Table, **values: Any) -> pa.Table:
    """The rows whose columns have these values; None for null: ``select(table, fusion="bermo")``.

    Raises:
        UserError: no such column.
    """
    for name, value in values.items():
        if name not in table.column_names:
            raise UserError(f"select: no column {name!r}")
        column = table[name]
        same = pc.is_null(column) if value is None else pc.equal(column, value)
        table = table.filter(pc.fill_null(same, False))
    return table


def completed(table: pa.Table, value: str = REPORTED) -> pa.Table:
    """The trials that completed and have this measured."""
    done = pc.equal(table["status"], str(Status.COMPLETED))
    return table.filter(pc.and_(done, pc.is_valid(table[value])))


def mean_over_seeds(table: pa.Table, by: Sequence[str], value: str = REPORTED) -> pa.Table:
    """A row for each group, in the order in which groups first appear, with :data:`MEANS` behind
    the columns that make a group. Diverged trials are counted, and no part of the mean."""
    rows: list[dict[str, Any]] = []
    keys = list(zip(*(table[name].to_pylist() for name in by), strict=True))
    statuses, values = table["status"].to_pylist(), table[value].to_pylist()
    for key in dict.fromkeys(keys):
        members = [i for i, other in enumerate(keys) if other == key]
        known = np.array(
            [
                values[i]
                for i in members
                if statuses[i] == Status.COMPLETED and values[i] is not None
            ],
            float,
        )
        several = len(known) > 1
        rows.append(
            dict(zip(by, key, strict=True))
            | {
                "seeds": len(known),
                "diverged": sum(statuses[i] == Status.DIVERGED for i in members),
                "mean": float(known.mean()) if len(known) else None,
                "deviation": float(known.std(ddof=1)) if several else None,
                "interval": float(mean_half_width(known)) if several else None,
            }
        )
    schema = pa.schema([*(table.schema.field(name) for name in by), *MEANS])
    return pa.Table.from_pylist(rows, schema=schema)


def values_by_seed(
    table: pa.Table, value: str = REPORTED, over: Sequence[str] = ("task", "backbone")
) -> dict[int, float]:
    """Of each seed the mean of a value over groups of trials, by default tasks and encoders; a
    seed of which any group of the table has no completed trial is left out.

    Args:
        table: Trials of one arm.
        value: The column.
        over: The columns that make a group.
    """
    groups = set(_group_keys(table, over))
    done = completed(table, value)
    values: dict[int, dict[tuple[Any, ...], list[float]]] = {}
    keys = _group_keys(done, over)
    for seed, key, number in zip(
        done["seed"].to_pylist(), keys, done[value].to_pylist(), strict=True
    ):
        values.setdefault(seed, {}).setdefault(key, []).append(number)
    return {
        seed: math.fsum(float(np.mean(numbers)) for numbers in by_group.values()) / len(by_group)
        for seed, by_group in sorted(values.items())
        if set(by_group) == groups
    }


def _group_keys(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    if not columns:
        return [()] * table.num_rows
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))
