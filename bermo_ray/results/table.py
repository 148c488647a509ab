"""MLflow -> Arrow: one tidy table, one row a trial."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray import tracking
from bermo_ray.errors import UserError
from bermo_ray.results import store
from bermo_ray.trial import Trial

RUNS = "runs"  # the default folder of a study's records

_T = pa.timestamp("ms", tz="UTC")
# (column, type, where it comes from, what it is). Null where a run has no such value.
_COLUMNS: tuple[tuple[str, pa.DataType, str, str], ...] = (
    ("study", pa.string(), "tag bermo.study", "name of the study"),
    ("run_id", pa.string(), "", "MLflow's id of the trial's run"),
    ("trial_id", pa.string(), "tag bermo.trial", "identity of the Trial (hash of its content)"),
    ("recipe", pa.string(), "tag bermo.recipe", "identity of the Trial but for its seed"),
    ("status", pa.string(), "tag bermo.status", "completed, diverged, failed, interrupted, …"),
    ("reason", pa.string(), "tag bermo.reason", "why it diverged or failed"),
    ("task", pa.string(), "param data.task", ""),
    ("backbone", pa.string(), "param backbone", ""),
    ("fusion", pa.string(), "param fusion.name", ""),
    ("method", pa.string(), "param pruning.method", "pruning method; 'dense' for none"),
    ("strategy", pa.string(), "param layer_drop.strategy", "of layer dropping; null for none"),
    ("count", pa.int64(), "", "layers dropped"),
    ("dropped", pa.string(), "tag bermo.dropped", "which, counted from 1, as a JSON list"),
    ("layers", pa.int64(), "metric layers", "layers left"),
    ("mode", pa.string(), "param mode", "finetune or features"),
    ("seed", pa.int64(), "param seed", ""),
    ("epochs", pa.int64(), "param epochs", ""),
    ("batch_size", pa.int64(), "param batch_size", "over all workers"),
    ("workers", pa.int64(), "param run.workers", ""),
    ("final_lambda", pa.float64(), "param pruning.final_lambda", "λ at the end"),
    ("learning_rate", pa.float64(), "param optimizer.learning_rate", ""),
    ("mask_rate", pa.float64(), "param optimizer.mask_rate", ""),
    ("metric", pa.float64(), "metric metric", "the task's own metric on dev, at the end"),
    ("first_half", pa.float64(), "metric first_half", "the metric on one half of dev"),
    ("second_half", pa.float64(), "metric second_half", "and on the other"),
    ("others", pa.string(), "", "further metrics and dev sets of the task, as JSON"),
    ("loss", pa.float64(), "metric loss", "on dev"),
    ("train_loss", pa.float64(), "metric train_loss", "mean since the evaluation before"),
    ("trivial", pa.float64(), "metric trivial", "what a constant answer reaches"),
    ("remaining", pa.float64(), "metric remaining", "share of the encoder's parameters left"),
    ("density", pa.float64(), "metric density", "share of the prunable weights left"),
    ("nonzero", pa.int64(), "metric nonzero", "non-zero parameters of the whole model"),
    ("parameters", pa.int64(), "metric parameters", "all parameters of the whole model"),
    ("rows_per_second", pa.float64(), "metric rows_per_second", "training speed"),
    ("latency", pa.float64(), "metric latency", "seconds of a forward where it was trained"),
    ("bytes", pa.int64(), "metric bytes", "of all weights, stored dense"),
    ("started", _T, "", ""),
    ("seconds", pa.float64(), "", "wall time from first start to end"),
    ("checkpoint", pa.string(), "tag bermo.checkpoint", "where the newest one lies"),
    ("trial", pa.string(), "tag bermo.trial_json", "the Trial as JSON, complete"),
)  # fmt: skip

SCHEMA = pa.schema(
    [pa.field(n, t, metadata={"from": f, "meaning": m}) for n, t, f, m in _COLUMNS],
    metadata={"bermo_ray.schema": "3"},
)


# What a row is made of, for the store to read no more than that.
_KEYS = {
    place: [
        source.partition(" ")[2] for _, _, source, _ in _COLUMNS if source.startswith(f"{place} ")
    ]
    for place in ("tag", "param", "metric")
}
_KEYS["metric"].append(tracking.OTHER)


def load(study: str, uri: str | None = None) -> pa.Table:
    """All trials of a study, in order of their start, with :data:`SCHEMA`; of studies that an
    earlier version wrote too, with nulls for what it did not keep.

    ``uri`` is an MLflow store; without one, MLFLOW_TRACKING_URI's or the one in ``./runs``.

    Raises:
        UserError: no such study in that store.
    """
    found = store.of_study(tracking.store_uri(Path(RUNS), uri), study, _KEYS)
    return _table(found)


def load_all(uri: str | None = None) -> pa.Table:
    """The trials of all studies of a store, as :func:`load` gives one's; empty without a store."""
    return _table(store.every(tracking.store_uri(Path(RUNS), uri), _KEYS))


def query(sql: str, uri: str | None = None, **tables: pa.Table) -> pa.Table:
    """Runs SQL (DuckDB's) over Arrow tables, each under its name: ``query("SELECT max(metric) FROM
    trials WHERE remaining < 0.2", trials=load("NAME"))``. Without tables, ``trials`` are those of
    all studies of the store (``uri``, as for :func:`load`). Nothing else can be read.

    Raises:
        UserError: what DuckDB says of the statement, in one line.
    """
    import duckdb

    tables = tables or {"trials": load_all(uri)}
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as database:
        for name, table in tables.items():
            database.register(name, table)
        try:
            answer = database.sql(sql)
            if answer is None:
                raise UserError("sql: the statement gives no rows; expected a SELECT")
            return answer.to_arrow_table()
        except duckdb.Error as error:
            raise UserError(f"sql: {' '.join(str(error).split())}") from error


def predictions(run: str, uri: str | None = None) -> pa.Table:
    """A trial's answers on its dev set, by its id: ``row``, ``target``, ``predicted``."""
    return tracking.predictions(tracking.store_uri(Path(RUNS), uri), run)


def _table(records: list[store.Record]) -> pa.Table:
    rows = [_row(record) for record in records]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(run: store.Record) -> dict[str, Any]:
    data: dict[str, Mapping[str, Any]]
    data = {"tag": run.tags, "param": run.params, "metric": run.metrics}
    row: dict[str, Any] = {}
    for name, cast, place, key in _SOURCES:
        value = data[place].get(key)
        row[name] = value if value is None or cast is None else cast(value)
    row["run_id"] = run.run_id
    prefix = tracking.OTHER
    others = {k: v for k, v in run.metrics.items() if k.startswith(prefix)}
    row["others"] = json.dumps({k.removeprefix(prefix): v for k, v in sorted(others.items())})
    if row["recipe"] is None and row["trial"] is not None:  # before version 3
        row["recipe"] = Trial.from_json(row["trial"]).recipe
    row["method"] = row["method"] or "dense"
    row["dropped"] = row["dropped"] or "[]"
    row["count"] = len(json.loads(row["dropped"]))
    row["started"] = run.start
    if run.end:
        row["seconds"] = (run.end - run.start) / 1000
    return row


def _cast(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if pa.types.is_integer(kind):
        return lambda value: int(float(value))
    return float if pa.types.is_floating(kind) else None


# (column, how its text becomes a value, tag or param or metric, its key)
_SOURCES: list[tuple[str, Callable[[Any], Any] | None, str, str]] = [
    (name, _cast(kind), source.partition(" ")[0], source.partition(" ")[2])
    for name, kind, source, _ in _COLUMNS
    if source
]
