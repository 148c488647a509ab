"""Which checkpoints of a study may go, and removing them.

A study's models that are worth having are those on its frontier. All others can be trained again
from their records, which stay.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.record import Status
from bermo_ray.results.frontier import frontier
from bermo_ray.results.table import load, load_all
from bermo_ray.tracking import folders, reader, store
from bermo_ray.tracking.artifacts import save_predictions
from bermo_ray.tracking.folders import FolderSet
from bermo_ray.tracking.store import Store

UNFINISHED = "unfinished"
NEEDED = "a teacher or a start"
ON_FRONTIER = "on the frontier"
TAKEN = "on the frontier of a study that took it"


@dataclass(frozen=True)
class StoredCheckpoint:
    """A trial's checkpoint that is there."""

    run_id: str
    trial_id: str
    status: Status
    metric: float | None
    remaining: float | None
    folder: str  # or URI
    size: int  # bytes
    kept_because: str = ""  # empty: it may go


def judge_checkpoints(
    study: str, where: Store, keep_frontier: bool = True
) -> list[StoredCheckpoint]:
    """The checkpoints of the trials that a study ran, each with why it is kept, if it is:

    - its trial has not ended, or failed in a study that did not complete: a resumed study goes on
      from it;
    - another recorded trial has it as its teacher or its start, without which it can't be loaded;
    - its trial is on the frontier of the study, or of one that took the trial. A task, encoder and
      fusion with no trial there keeps the best that completed. Where nothing is pruned or dropped,
      the frontier is the best trial of each task, encoder and fusion.

    Args:
        study: Its name.
        where: The store, with the storage that the study was started with.
        keep_frontier: False leaves out the last of these reasons.

    Raises:
        UserError: no such study, or a checkpoint that may go is not in the study's own folder.
    """
    table, root = load(study, where.uri), f"{where.checkpoints}/{study}"
    if folders.path_within(root, where.checkpoints) != study:
        raise UserError(f"study {study!r} has no folder of its own in {where.checkpoints}")
    judged = [
        replace(checkpoint, kept_because=reason)
        for checkpoint, reason in _with_reasons(study, where.uri, table, keep_frontier)
    ]
    _check_places(judged, root)
    files = folders.list_files(root)
    sized = (
        replace(c, size=_sum_files(files, folders.path_within(c.folder, root))) for c in judged
    )
    return [checkpoint for checkpoint in sized if checkpoint.size]


def _sum_files(files: Mapping[str, int], folder: str | None) -> int:
    """The bytes of the files in a folder of the study; 0 of one that is elsewhere."""
    return 0 if folder is None else sum(files[f] for f in files if f.startswith(f"{folder}/"))


def _with_reasons(
    study: str, uri: str, table: pa.Table, keep_frontier: bool
) -> Iterator[tuple[StoredCheckpoint, str]]:
    """The checkpoints that were recorded, and why each is kept; empty where it is not."""
    is_complete = _read_status(study, uri) is Status.COMPLETED
    needed = FolderSet(_find_needed(load_all(uri)))
    best = find_best(table) if keep_frontier else set()
    taken = _find_best_elsewhere(study, uri) if keep_frontier else set()
    for row in table.to_pylist():
        status, folder = Status(row["status"]), row["checkpoint"]
        if row["study"] != study or not folder:
            continue
        reasons = {
            UNFINISHED: not status.ended or (status is Status.FAILED and not is_complete),
            NEEDED: needed.touches(folder),
            ON_FRONTIER: row["run_id"] in best,
            TAKEN: row["run_id"] in taken,
        }
        checkpoint = StoredCheckpoint(
            row["run_id"], row["trial_id"], status, row["metric"], row["remaining"], folder, 0
        )
        yield checkpoint, next((reason for reason, holds in reasons.items() if holds), "")


def find_best(table: pa.Table) -> set[str]:
    """The runs of the trials on the frontier and, of a task, encoder and fusion that has none there
    (all are hardly better than a constant answer), of its best trial that completed."""
    best = set(frontier(table)["run_id"].to_pylist())
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["status"] == Status.COMPLETED and row["metric"] is not None:
            group = (row["task"], row["backbone"], row["fusion"])
            groups.setdefault(group, []).append(row)
    for rows in groups.values():
        if not any(row["run_id"] in best for row in rows):
            best.add(max(rows, key=lambda row: row["metric"])["run_id"])
    return best


def _find_best_elsewhere(study: str, uri: str) -> set[str]:
    """Runs on the frontier of other studies that took trials."""
    best: set[str] = set()
    for run in reader.read_study_runs(uri):
        name = run.tags["bermo.study"]
        if name == study or not store.taken_runs(run.tags):
            continue
        best |= find_best(load(name, uri))
    return best


def _read_status(study: str, uri: str) -> Status:
    """How the newest study of that name ended."""
    runs = [run for run in reader.read_study_runs(uri) if run.tags["bermo.study"] == study]
    return Status(runs[-1].tags["bermo.status"])


def _find_needed(trials: pa.Table) -> Iterator[str]:
    """Folders that trials name as their teacher or their start."""
    for text in trials["trial_json"].to_pylist():
        trial = json.loads(text or "{}")
        for folder in (trial.get("warm_start"), (trial.get("distillation") or {}).get("teacher")):
            if folder:
                yield folder


def _check_places(checkpoints: Iterable[StoredCheckpoint], root: str) -> None:
    """Refuses to remove what a tag names if it is not the trial's own folder.

    Raises:
        UserError: for each that is not in the study's folder, or shares files with one that stays.
    """
    checkpoints = list(checkpoints)
    kept = FolderSet(c.folder for c in checkpoints if c.kept_because)
    problems = []
    for checkpoint in checkpoints:
        if checkpoint.kept_because:
            continue
        name = f"trial {checkpoint.trial_id[:6]}: its checkpoint {checkpoint.folder}"
        if folders.path_within(checkpoint.folder, root) is None:
            problems.append(f"{name} is not in {root}; nothing was removed; give its `storage`")
        elif kept.touches(checkpoint.folder):
            problems.append(f"{name} is that of a trial that is kept; nothing was removed")
    if problems:
        raise UserError(*problems)


def remove_checkpoints(checkpoints: Iterable[StoredCheckpoint], uri: str) -> None:
    """Removes those that may go, and records it with their trials. Nothing else of them goes: what
    MLflow has, predictions and tables stay.

    Args:
        checkpoints: From :func:`judge_checkpoints`.
        uri: MLflow's store.

    Raises:
        UserError: one can't be removed.
    """
    client = store.connect(uri)
    for checkpoint in checkpoints:
        if not checkpoint.kept_because:
            save_predictions(client, checkpoint.run_id, checkpoint.folder)
            # First the record: half a checkpoint must not be taken for one that is there.
            store.mark_removed(client, checkpoint.run_id)
            folders.remove_folder(checkpoint.folder)
