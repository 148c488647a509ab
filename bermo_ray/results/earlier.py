"""Trials of earlier studies in a store, for studies that need not run them again."""

import contextlib
from collections.abc import Iterator

from bermo_ray.errors import UserError
from bermo_ray.record import DECIDING, Report, Status
from bermo_ray.results.table import load_all
from bermo_ray.search.known_trials import KnownTrial
from bermo_ray.trial import Trial


def read_known_trials(
    uri: str,
    study: str | None = None,
    before: float | None = None,
    workers: int | None = None,
    commit: str | None = None,
) -> Iterator[KnownTrial]:
    """Trials of a store that trained to their end, oldest first.

    Args:
        uri: MLflow's store.
        study: Of this study none is given.
        before: Those that ended later, in seconds, are left out: a resumed study goes on with what
            it knew at its start.
        workers: Only those with so many: the order of additions differs with it.
        commit: Only those of the same state of the code.
    """
    for row in load_all(uri).to_pylist():
        if not Status(row["status"]).measured or row["study"] == study:
            continue
        ended = row["started"].timestamp() + (row["seconds"] or 0.0)
        if before is not None and ended > before:
            continue
        if (workers or row["workers"]) != row["workers"] or (commit or row["commit"]) != row[
            "commit"
        ]:
            continue
        with contextlib.suppress(UserError):  # what it names is of a plug-in that is not loaded
            known = {name: row[name] for name in DECIDING if row.get(name) is not None}
            yield KnownTrial(
                Trial.from_json(row["trial_json"]),
                Report.from_dict(known),
                row["run_id"],
                row["study"],
                row["checkpoint"] or "",
                row,
            )
