"""MLflow's artifacts: what they take, and bringing predictions there that are elsewhere."""

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray.record import PREDICTIONS_FILE
from bermo_ray.tracking import reader, store
from bermo_ray.tracking.folders import list_files, open_folder
from bermo_ray.tracking.store import SQLITE

PREDICTIONS_TAG = "bermo.predictions"  # on a trial whose predictions are in its checkpoint alone
# Runs that were deleted count too: MLflow leaves their files.
_OF_RUNS = """
    SELECT tags.value, runs.artifact_uri FROM runs
    JOIN tags ON tags.run_uuid = runs.run_uuid AND tags.key = 'bermo.study'
"""
_OF_MODELS = """
    SELECT tags.value, logged_models.artifact_location FROM logged_models
    JOIN tags ON tags.run_uuid = logged_models.source_run_id AND tags.key = 'bermo.study'
"""


def measure_artifacts(uri: str) -> dict[str, int]:
    """Bytes of all artifacts of each study and its trials, by the study's name.

    Args:
        uri: An MLflow store.

    Raises:
        UserError: the store, or the place of its artifacts, can't be read.
    """
    sizes: Counter[str] = Counter()
    if uri.startswith(SQLITE):
        with closing(reader.open_database(uri)) as database:
            for study, location in _read_locations(database):
                sizes[study] += sum(list_files(location).values())
        return dict(sizes)
    client = store.connect(uri)
    for run in (*store.all_study_runs(client), *store.all_trial_runs(client)):
        study = run.data.tags["bermo.study"]
        sizes[study] += _sum_listed(partial(client.list_artifacts, run.info.run_id))
        for output in run.outputs.model_outputs if run.outputs else ():
            list_model = partial(client.list_logged_model_artifacts, output.model_id)
            sizes[study] += _sum_listed(list_model)
    return dict(sizes)


def _read_locations(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """(study, folder or URI) of everything that has artifacts."""
    return [row for query in (_OF_RUNS, _OF_MODELS) for row in database.execute(query)]


def _sum_listed(list_folder: Callable[[str | None], Any], path: str | None = None) -> int:
    """The bytes of what MLflow lists there and below."""
    return sum(
        _sum_listed(list_folder, entry.path) if entry.is_dir else int(entry.file_size or 0)
        for entry in list_folder(path)
    )


def save_predictions(client: Any, run_id: str, checkpoint: str) -> None:
    """Copies a trial's predictions out of its checkpoint where they are nowhere else: the recorder
    could not.

    Raises:
        UserError: the checkpoint can't be reached.
    """
    if PREDICTIONS_TAG not in client.get_run(run_id).data.tags:
        return
    filesystem, path = open_folder(checkpoint)
    try:
        with filesystem.open_input_stream(f"{path}/{PREDICTIONS_FILE}") as stream:
            content = stream.read()
    except (OSError, pa.ArrowException):  # a trial that failed has made none
        return
    with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
        copy = Path(folder) / PREDICTIONS_FILE
        copy.write_bytes(content)
        client.log_artifact(run_id, str(copy))
    client.delete_tag(run_id, PREDICTIONS_TAG)
