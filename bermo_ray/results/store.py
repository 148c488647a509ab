"""Reading trials out of MLflow's store: straight from SQLite's tables, or through its client.

The client takes a second for every few hundred runs; a local store is read as what it is.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bermo_ray import tracking
from bermo_ray.errors import UserError

SQLITE = "sqlite:///"


@dataclass
class Record:
    """One trial's run, as the store has it."""

    run_id: str
    start: int  # ms
    end: int | None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def of_study(uri: str, study: str, keys: Mapping[str, Sequence[str]]) -> list[Record]:
    """All trials of a study, oldest first; of tags, params and metrics only ``keys``, where a name
    that ends in ``/`` stands for all that begin so.

    Raises:
        UserError: no such study in that store.
    """
    if uri.startswith(SQLITE):
        with closing(_open(uri)) as database:
            parents = _where(database, {"bermo.kind": "study", "bermo.study": study})
            newest = sorted(parents, key=lambda run: run[1])[-1:]
            if newest:
                return _read(database, {"mlflow.parentRunId": newest[0][0]}, keys)
    else:
        parent = tracking.find_study(uri, study)
        if parent is not None:
            return _records(tracking.trial_runs(tracking.client(uri), parent.info.run_id))
    raise UserError(f"no study {study!r} in {uri}")


def every(uri: str, keys: Mapping[str, Sequence[str]]) -> list[Record]:
    """The trials of all studies in a store; none where there is no store yet."""
    if uri.startswith(SQLITE):
        if not Path(uri.removeprefix(SQLITE)).is_file():
            return []
        with closing(_open(uri)) as database:
            return _read(database, {"bermo.kind": "trial"}, keys)
    return _records(tracking.all_trials(tracking.client(uri)))


def _records(runs: Iterable[Any]) -> list[Record]:
    found = []
    for run in runs:
        info, data = run.info, run.data
        record = Record(info.run_id, info.start_time, info.end_time)
        record.tags, record.params, record.metrics = data.tags, data.params, data.metrics
        found.append(record)
    return found


def _open(uri: str) -> sqlite3.Connection:
    file = Path(uri.removeprefix(SQLITE))
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        database.execute("SELECT run_uuid FROM runs LIMIT 1")
    except sqlite3.Error as error:
        raise UserError(f"--tracking-uri: can't read {uri}: {error}") from error
    return database


def _where(database: sqlite3.Connection, tags: dict[str, str]) -> list[tuple[str, int, int | None]]:
    """(id, start, end) of the runs that carry all these tags, oldest first."""
    clause = " AND ".join(
        "run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)" for _ in tags
    )
    values = [word for pair in tags.items() for word in pair]
    query = f"SELECT run_uuid, start_time, end_time FROM runs WHERE lifecycle_stage = 'active' AND {clause} ORDER BY start_time, rowid"  # fmt: skip # noqa: E501
    return database.execute(query, values).fetchall()


def _read(
    database: sqlite3.Connection, tags: dict[str, str], keys: Mapping[str, Sequence[str]]
) -> list[Record]:
    found = {run: Record(run, start, end) for run, start, end in _where(database, tags)}
    sources = (
        ("tags", "value", keys["tag"]),
        ("params", "value", keys["param"]),
        # MLflow keeps NaN as a 0 with a mark.
        ("latest_metrics", "CASE WHEN is_nan THEN NULL ELSE value END", keys["metric"]),
    )
    for (table, value, names), part in zip(sources, ("tags", "params", "metrics"), strict=True):
        for name in names:
            # A range of the primary key (key, run_uuid); '0' follows '/'.
            span = (name, name[:-1] + "0") if name.endswith("/") else (name, name + "\x00")
            query = f"SELECT run_uuid, key, {value} FROM {table} WHERE key >= ? AND key < ?"
            for run, key, content in database.execute(query, span):
                if run in found and content is not None:
                    getattr(found[run], part)[key] = content
    return list(found.values())
