"""The studies of a store, a row each."""

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa

from bermo_ray.record import Status
from bermo_ray.results.schemas import INTEGER, NUMBER, TEXT, make_schema
from bermo_ray.results.table import load_all
from bermo_ray.tracking import reader, store

STUDIES = make_schema(
    ("study", TEXT, "its name"),
    ("status", TEXT, "how the study ended, or running"),
    ("started", pa.timestamp("s", tz="UTC"), "when it was started"),
    ("seconds", NUMBER, "from its start to its end; null while it runs"),
    ("trials", INTEGER, "that it ran or took from earlier studies"),
    ("completed", INTEGER, "of those it ran"),
    ("diverged", INTEGER, "of those it ran"),
    ("stopped", INTEGER, "of those it ran: its search gave them up"),
    ("failed", INTEGER, "of those it ran"),
    ("unfinished", INTEGER, "of those it ran: running, or interrupted"),
    ("taken", INTEGER, "trials that it took from earlier studies"),
    ("tasks", TEXT, "of the trials that it ran"),
)


def list_studies(uri: str) -> pa.Table:
    """All studies of a store, oldest first, with the schema :data:`STUDIES`.

    Args:
        uri: An MLflow store.
    """
    trials = load_all(uri)
    ended: dict[str, Counter[Status]] = {}
    tasks: dict[str, dict[str, None]] = {}
    columns = (trials[name].to_pylist() for name in ("study", "status", "task"))
    for study, status, task in zip(*columns, strict=True):
        ended.setdefault(study, Counter())[Status(status)] += 1
        tasks.setdefault(study, {})[task] = None
    rows = []
    for run in reader.read_study_runs(uri):
        name = run.tags["bermo.study"]
        counts, taken = ended.get(name, Counter()), len(store.taken_runs(run.tags))
        named = (Status.COMPLETED, Status.DIVERGED, Status.STOPPED, Status.FAILED)
        rows.append({
            "study": name,
            "status": run.tags["bermo.status"],
            "started": datetime.fromtimestamp(run.started / 1000, UTC),
            "seconds": None if run.ended is None else (run.ended - run.started) / 1000,
            "trials": counts.total() + taken,
            **{str(status): counts[status] for status in named},
            "unfinished": counts.total() - sum(counts[status] for status in named),
            "taken": taken,
            "tasks": ", ".join(tasks.get(name, {})),
        })  # fmt: skip
    return pa.Table.from_pylist(rows, schema=STUDIES)
