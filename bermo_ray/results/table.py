"""From MLflow to Arrow: one tidy table, one row per trial, with :data:`bermo_ray.record.SCHEMA`."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.record import SCHEMA, row_from_mlflow
from bermo_ray.tracking import reader, store


def load(study: str, uri: str | None = None) -> pa.Table:
    """All trials of a study, in order of their start, with :data:`bermo_ray.record.SCHEMA`.

    Args:
        study: The study's name; of several that were given it, the newest is read.
        uri: An MLflow store; without one, MLFLOW_TRACKING_URI's or the one in ``./runs``.

    Raises:
        UserError: no such study in that store.
    """
    return to_table(reader.read_study(_store_uri(uri), study))


def load_all(uri: str | None = None) -> pa.Table:
    """The trials of all studies of a store, as :func:`load` gives one's; empty without a store."""
    return to_table(reader.read_all(_store_uri(uri)))


def predictions(trial: str, uri: str | None = None) -> pa.Table:
    """A trial's answers on its dev set: ``row``, ``gold``, ``predicted``, ``right``, and
    ``verifies``: whether the row is of the verification half, which chose nothing.

    Args:
        trial: The first digits of its ``trial_id`` or of its ``run_id``.
        uri: As for :func:`load`.

    Raises:
        UserError: no such trial, or one that kept no predictions.
    """
    return store.read_predictions(_store_uri(uri), trial)


def query(sql: str, uri: str | None = None, **tables: pa.Table) -> pa.Table:
    """Runs SQL (DuckDB's) over Arrow tables, each under its name: ``query("SELECT max(metric) FROM
    trials WHERE remaining < 0.2", trials=load("NAME"))``. Nothing else can be read.

    Args:
        sql: A statement that gives rows.
        uri: Without tables, ``trials`` are those of all studies of this store, as for :func:`load`.
        tables: What the statement may name.

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


def _store_uri(uri: str | None) -> str:
    return store.store_uri(Path(store.RUNS), uri)


def to_table(runs: Iterable[reader.StoredRun]) -> pa.Table:
    """The rows of runs, with :data:`bermo_ray.record.SCHEMA`."""
    rows = [
        row_from_mlflow(run.run_id, run.started, run.ended, run.tags, run.metrics) for run in runs
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
