"""A folder of studies that was moved: MLflow's SQLite store names files by absolute paths."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from bermo_ray.tracking.store import ARTIFACTS, DATABASE

# Table and column of each path that MLflow or we keep there.
_PATHS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("tags", "value"),
    ("logged_model_tags", "tag_value"),
)


def follow_move(runs: Path) -> bool:
    """Has the store in a folder name the files in that folder, if it names those of another one,
    where it lay before; whether it did. Nothing else of the store changes.

    Args:
        runs: The folder of studies, as it is called now.
    """
    file = runs.absolute() / DATABASE
    if not file.is_file():
        return False
    with closing(sqlite3.connect(file, timeout=30)) as database, database:
        query = "SELECT artifact_location FROM experiments WHERE artifact_location LIKE ?"
        row = database.execute(query, [f"file:///%/{ARTIFACTS}/%"]).fetchone()
        if row is None:
            return False
        here = runs.absolute().as_uri()
        before = row[0].rpartition(f"/{ARTIFACTS}/")[0]
        if before == here:
            return False
        # MLflow's paths are URIs, with %20 for a space; ours are plain.
        folders = {before: here, unquote(before.removeprefix("file://")): str(runs.absolute())}
        for table, column in _PATHS:
            for old, new in folders.items():
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                    f"WHERE substr({column}, 1, ?) = ?",
                    [f"{new}/", len(old) + 2, len(old) + 1, f"{old}/"],
                )
    return True
