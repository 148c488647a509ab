"""From MLflow to Arrow: one tidy table, one row per trial, with :data:`bermo_ray.record.SCHEMA`."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bermo_ray.errors import UserError
from bermo_ray.record import PREDICTIONS_FILE, SCHEMA, row_from_mlflow
from bermo_ray.results.significance import Predictions
from bermo_ray.tracking import reader, store
from bermo_ray.tracking.folders import read_file


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


def predictions_of(table: pa.Table, uri: str | None = None) -> Predictions:
    """Reads the answers of a table's trials by their ``run_id``, as :func:`predictions` gives them:
    out of the checkpoint, or from MLflow where that is gone. None of a trial whose answers are
    nowhere, or in a store that is away: a study ends with its other numbers.

    Args:
        table: Rows with :data:`bermo_ray.record.SCHEMA`.
        uri: As for :func:`load`.
    """
    columns = (table[name].to_pylist() for name in ("run_id", "checkpoint"))
    checkpoints = dict(zip(*columns, strict=True))

    def read(run_id: str) -> pa.Table | None:
        checkpoint = checkpoints.get(run_id)
        content = read_file(checkpoint, PREDICTIONS_FILE) if checkpoint else None
        if content is not None:
            return pq.read_table(pa.BufferReader(content))
        with contextlib.suppress(UserError):
            return predictions(run_id, uri)
        return None

    return read


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
