"""Reads trials out of MLflow's store: straight from SQLite's tables, or through its client.

The client takes a second for every few hundred runs; a local store is read as what it is.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.record import FIELDS, Source
from bermo_ray.tracking import store
from bermo_ray.tracking.store import SQLITE


@dataclass
class StoredRun:
    """One trial's run, as the store has it; times in ms."""

    run_id: str
    started: int
    ended: int | None
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def read_study(uri: str, study: str) -> list[StoredRun]:
    """All trials of a study, those that it took from earlier studies included, oldest first.

    Raises:
        UserError: no such study in that store.
    """
    if uri.startswith(SQLITE):
        with closing(open_database(uri)) as database:
            parents = _select_runs(database, {"bermo.kind": "study", "bermo.study": study})
            newest = sorted(parents, key=lambda run: run[1])[-1:]
            if newest:
                return _read(database, _select_trials(database, newest[0][0]))
    else:
        parent = store.find_study(uri, study)
        if parent is not None:
            client = store.connect(uri)
            taken = [client.get_run(run_id) for run_id in store.taken_runs(parent.data.tags)]
            runs = [*taken, *store.trial_runs(client, parent.info.run_id)]
            return _from_client(sorted(runs, key=lambda run: run.info.start_time))
    raise store.NoStudyError(f"no study {study!r} in {uri}")


def read_all(uri: str) -> list[StoredRun]:
    """The trials of all studies in a store; none where there is no store yet."""
    if uri.startswith(SQLITE):
        if not Path(uri.removeprefix(SQLITE)).is_file():
            return []
        with closing(open_database(uri)) as database:
            return _read(database, _select_runs(database, {"bermo.kind": "trial"}))
    return _from_client(store.all_trial_runs(store.connect(uri)))


def read_study_runs(uri: str) -> list[StoredRun]:
    """The studies' own runs, oldest first, with the tags that say what they are and how they ended;
    none where there is no store yet."""
    if not uri.startswith(SQLITE):
        return _from_client(store.all_study_runs(store.connect(uri)))
    if not Path(uri.removeprefix(SQLITE)).is_file():
        return []
    with closing(open_database(uri)) as database:
        runs = [StoredRun(*run) for run in _select_runs(database, {"bermo.kind": "study"})]
        for run in runs:
            query = "SELECT key, value FROM tags WHERE run_uuid = ? AND key LIKE 'bermo.%'"
            run.tags = dict(database.execute(query, [run.run_id]))
    return runs


def read_curves(
    uri: str, run_ids: Sequence[str], keys: Sequence[str]
) -> dict[str, dict[str, dict[int, float]]]:
    """Of each run the values of these metrics by step: ``curves[run_id][key][step]``.

    Args:
        uri: An MLflow store.
        run_ids: Of trials.
        keys: Names of metrics, such as ``epoch`` and ``metric``.
    """
    curves: dict[str, dict[str, dict[int, float]]] = {r: {k: {} for k in keys} for r in run_ids}
    if uri.startswith(SQLITE):
        marks = ", ".join("?" for _ in keys)
        query = (
            "SELECT key, step, value FROM metrics WHERE run_uuid = ? AND NOT is_nan "
            f"AND key IN ({marks}) ORDER BY step, timestamp"
        )
        with closing(open_database(uri)) as database:
            for run_id in run_ids:
                for key, step, value in database.execute(query, [run_id, *keys]):
                    curves[run_id][key][step] = value
        return curves
    client = store.connect(uri)
    for run_id in run_ids:
        for key in keys:
            history = client.get_metric_history(run_id, key)
            points = sorted((m.step, m.timestamp, m.value) for m in history)
            curves[run_id][key] = {step: value for step, _, value in points if value == value}
    return curves


def _from_client(runs: Iterable[Any]) -> list[StoredRun]:
    return [
        StoredRun(
            r.info.run_id, r.info.start_time, r.info.end_time,
            r.data.tags, r.data.metrics,
        )
        for r in runs
    ]  # fmt: skip


def open_database(uri: str) -> sqlite3.Connection:
    """A connection to a store in SQLite that only reads.

    Raises:
        UserError: the file is no such store.
    """
    file = Path(uri.removeprefix(SQLITE))
    # A writer that was killed leaves a journal that the next to open the file rolls back, which a
    # connection for reading alone may not.
    mode = "rw" if os.access(file, os.W_OK) else "ro"
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode={mode}", uri=True, timeout=30)
        database.execute("PRAGMA query_only = ON")
        database.execute("SELECT run_uuid FROM runs LIMIT 1")
    except sqlite3.Error as error:
        raise UserError(f"tracking_uri: can't read {uri}: {error}") from error
    return database


_Run = tuple[str, int, int | None]  # id, start, end


def _select_trials(database: sqlite3.Connection, study_run: str) -> list[_Run]:
    """The trials that a study ran, and those that it took, oldest first."""
    query = "SELECT key, value FROM tags WHERE run_uuid = ?"
    taken = set(store.taken_runs(dict(database.execute(query, [study_run]))))
    runs = _select_runs(database, {"mlflow.parentRunId": study_run})
    if taken:
        trials = _select_runs(database, {"bermo.kind": "trial"})
        runs += [run for run in trials if run[0] in taken]
    return sorted(runs, key=lambda run: run[1])


def _select_runs(database: sqlite3.Connection, tags: dict[str, str]) -> list[_Run]:
    """(id, start, end) of the runs that carry all these tags, oldest first."""
    clause = " AND ".join(
        "run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)" for _ in tags
    )
    values = [word for pair in tags.items() for word in pair]
    query = (
        "SELECT run_uuid, start_time, end_time FROM runs WHERE lifecycle_stage = 'active' "
        f"AND {clause} ORDER BY start_time, rowid"
    )
    return database.execute(query, values).fetchall()


def _keys(source: Source) -> list[str]:
    """What a row of the results is made of, so that no more than that is read."""
    return [f"{f.key}/" if f.spread else f.key for f in FIELDS if f.source == source]


# Table of MLflow's, the value in it, the attribute of StoredRun, and the keys that are read.
_PARTS: tuple[tuple[str, str, str, Sequence[str]], ...] = (
    ("tags", "value", "tags", _keys("tag")),
    # MLflow keeps NaN as a 0 with a mark.
    ("latest_metrics", "CASE WHEN is_nan THEN NULL ELSE value END", "metrics", _keys("metric")),
)


def _read(database: sqlite3.Connection, selected: Sequence[_Run]) -> list[StoredRun]:
    runs = {run[0]: StoredRun(*run) for run in selected}
    for table, value, attribute, keys in _PARTS:
        for key in keys:
            # A range of the primary key (key, run_uuid): one key, or all that begin with "key/"
            # ("0" follows "/" in ASCII).
            span = (key, key[:-1] + "0") if key.endswith("/") else (key, key + "\x00")
            query = f"SELECT run_uuid, key, {value} FROM {table} WHERE key >= ? AND key < ?"
            for run_id, name, content in database.execute(query, span):
                if run_id in runs and content is not None:
                    getattr(runs[run_id], attribute)[name] = content
    return list(runs.values())
