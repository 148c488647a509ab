"""What studies take on disk, a row each, and what else the project keeps there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray import cache
from bermo_ray.results.schemas import INTEGER, TEXT, make_schema
from bermo_ray.results.table import load_all
from bermo_ray.tracking import reader
from bermo_ray.tracking.artifacts import measure_artifacts
from bermo_ray.tracking.folders import list_files, parents, path_within
from bermo_ray.tracking.store import SQLITE, Store

DISK = make_schema(
    ("name", TEXT, "of the study, or where else files are"),
    ("kind", TEXT, "'study'; 'no study' for a folder among the checkpoints; 'database'; 'cache'"),
    ("trials", INTEGER, "that the study ran"),
    ("models", INTEGER, "trials whose checkpoint is there"),
    ("checkpoints", INTEGER, "bytes, with the state to resume from"),
    ("artifacts", INTEGER, "bytes of MLflow's artifacts, registered models included"),
    ("tables", INTEGER, "bytes of the study's folder: tables, figures, report"),
    ("total", INTEGER, "bytes of all of these"),
    ("limit", INTEGER, "bytes that it may grow to; null: no limit"),
)


def measure_disk(store: Store) -> pa.Table:
    """What each study of a store takes, oldest first, then all else, with the schema :data:`DISK`.

    Raises:
        UserError: the store, or the place of checkpoints or artifacts, can't be read.
    """
    checkpoints = _group_checkpoints(load_all(store.uri))
    artifacts = measure_artifacts(store.uri)
    folders = _list_by_folder(store.checkpoints)
    names = dict.fromkeys(run.tags["bermo.study"] for run in reader.read_study_runs(store.uri))
    rows = []
    for name in names:
        place = store.of_study(name).checkpoints
        is_usual = place == store.checkpoints
        files = folders.get(name, {}) if is_usual else list_files(f"{place}/{name}")
        tables = sum(list_files(str(store.folder(name))).values())
        about = _count_models(checkpoints.get(name, []), f"{place}/{name}", files)
        sizes = {"artifacts": artifacts.get(name, 0), "tables": tables}
        total = about["checkpoints"] + sum(sizes.values())
        rows.append({"name": name, "kind": "study", **about, **sizes, "total": total})
    rows += [
        {"name": name, "kind": "no study", "total": sum(files.values())}
        for name, files in folders.items()
        if name not in names
    ]
    rows += _measure_database(store.uri)
    rows += _measure_cache()
    return pa.Table.from_pylist(rows, schema=DISK)


def _group_checkpoints(trials: pa.Table) -> dict[str, list[str]]:
    """By study: of each of its trials where the checkpoint should be, or nothing."""
    groups: dict[str, list[str]] = {}
    columns = (trials[name].to_pylist() for name in ("study", "checkpoint"))
    for study, checkpoint in zip(*columns, strict=True):
        groups.setdefault(study, []).append(checkpoint or "")
    return groups


def _list_by_folder(folder: str) -> dict[str, dict[str, int]]:
    """The bytes of the files of each folder in a folder, by the path in it."""
    groups: dict[str, dict[str, int]] = {}
    for path, size in list_files(folder).items():
        name, _, rest = path.partition("/")
        if rest:
            groups.setdefault(name, {})[rest] = size
    return groups


def _count_models(
    checkpoints: Sequence[str], root: str, files: Mapping[str, int]
) -> dict[str, int]:
    """Of a study: its trials, those whose checkpoint is there, and the bytes of all checkpoints.

    Args:
        checkpoints: Of each trial where it should be, or nothing.
        root: The study's folder of checkpoints.
        files: What is there.
    """
    present = {parent for file in files for parent in parents(file)}
    models, size = 0, sum(files.values())
    for folder in filter(None, checkpoints):
        within = path_within(folder, root)
        elsewhere = list_files(folder) if within is None else {}
        models += bool(elsewhere) or within in present
        size += sum(elsewhere.values())
    return {"trials": len(checkpoints), "models": models, "checkpoints": size}


def _measure_database(uri: str) -> list[dict[str, Any]]:
    """MLflow's own file; nothing where a server has it."""
    file = Path(uri.removeprefix(SQLITE))
    if not uri.startswith(SQLITE) or not file.is_file():
        return []
    return [{"name": file.name, "kind": "database", "total": file.stat().st_size}]


def _measure_cache() -> list[dict[str, Any]]:
    """Each folder of this machine's cache, of which each has the limit."""
    root, limit = cache.find_folder("."), cache.byte_limit()
    folders = {} if root is None else _list_by_folder(str(root))
    return [
        {"name": f"cache/{name}", "kind": "cache", "total": sum(files.values()), "limit": limit}
        for name, files in folders.items()
    ]
