"""Where records lie and how to find them: MLflow runs of studies (parents) and trials (children).

Tags in our name: ``bermo.kind`` (study or trial), ``bermo.study`` (on both), ``bermo.attempt``
(which run of a trial within its study), ``bermo.taken.RUN`` (on a study: a trial that it took from
an earlier one), ``bermo.checkpoint``, and those of :mod:`bermo_ray.record`.
"""

import logging
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bermo_ray.errors import UserError
from bermo_ray.record import PREDICTIONS_FILE, Status

RUNS = "runs"  # the default folder of studies' records
DATABASE = "mlflow.db"
SQLITE = "sqlite:///"
_TAKEN, _TAGS_PER_BATCH = "bermo.taken.", 100  # MLflow takes no more tags at once
STORAGE_VARIABLE = "BERMO_STORAGE"  # stands in for Store.storage; set on a cluster's head


def store_uri(runs: Path, asked: str | None = None) -> str:
    """The MLflow store that is meant: the one asked for, MLFLOW_TRACKING_URI's, or SQLite in
    ``runs``.

    A file is named by its absolute path, because Ray's workers change directory.
    """
    uri = asked or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{runs / DATABASE}"
    if uri.startswith(SQLITE):
        return f"{SQLITE}{Path(uri.removeprefix(SQLITE)).expanduser().absolute()}"
    return uri


@dataclass(frozen=True)
class Store:
    """Where a study keeps what it makes.

    Args:
        runs: Folder of the studies' tables and figures, one folder per study.
        tracking_uri: An MLflow server or store; None: SQLite in ``runs``.
        storage: Folder or URI of the checkpoints, on a cluster one that all nodes see; None:
            $BERMO_STORAGE, else a folder in ``runs``.
    """

    runs: Path = Path(RUNS)
    tracking_uri: str | None = None
    storage: str | None = None

    @property
    def uri(self) -> str:
        """MLflow's store."""
        return store_uri(self.runs.expanduser(), self.tracking_uri)

    @property
    def is_shared(self) -> bool:
        """Whether the user said where checkpoints go, so that all nodes of a cluster see them."""
        return bool(self.storage or os.environ.get(STORAGE_VARIABLE))

    @property
    def checkpoints(self) -> str:
        """Absolute folder or URI of the checkpoints."""
        asked = self.storage or os.environ.get(STORAGE_VARIABLE)
        path = asked or str(self.runs / "checkpoints")
        return path if "://" in path else str(Path(path).expanduser().absolute())

    def folder(self, study: str) -> Path:
        """Where a study's tables and figures go."""
        return self.runs.expanduser() / study


def connect(uri: str) -> Any:
    """A client of that store.

    Raises:
        UserError: the server does not answer, or the store can't be opened.
    """
    for name in ("alembic", "mlflow", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # With a server it prints an address for each trial, into the live display.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    if uri.startswith(("http://", "https://")):
        _ping(uri)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        if uri.startswith(SQLITE):
            Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)  # makes the tables of a new store, once, here
    except (MlflowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"tracking_uri: can't open {uri}: {why}") from error
    return client


def _ping(uri: str) -> None:
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=10).close()
    except (urllib.error.URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise UserError(f"tracking_uri: no MLflow server answers at {uri} ({why})") from error


def find_study(uri: str, name: str) -> Any | None:
    """The parent run of the study of that name; the newest, where there were several."""
    client = connect(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    query = f"tags.`bermo.kind` = 'study' and tags.`bermo.study` = '{name}'"
    runs = client.search_runs(experiments, query, max_results=1, order_by=["start_time DESC"])
    return runs[0] if runs else None


def taken_runs(tags: Mapping[str, str]) -> list[str]:
    """From the tags of a study's run, the runs of trials that it took from earlier studies."""
    return [key.removeprefix(_TAKEN) for key in tags if key.startswith(_TAKEN)]


def add_taken_runs(uri: str, study_run: str, studies: Mapping[str, str]) -> None:
    """Records with a study the trials that it took: the study that ran each, by its run's id."""
    from mlflow.entities import RunTag

    tags = [RunTag(f"{_TAKEN}{run_id}", study) for run_id, study in studies.items()]
    client = connect(uri)
    for start in range(0, len(tags), _TAGS_PER_BATCH):
        client.log_batch(study_run, tags=tags[start : start + _TAGS_PER_BATCH])


def find_trial(uri: str, trial: str) -> Any:
    """A trial's run by the first digits of its ``trial_id`` or of its MLflow run's id.

    Raises:
        UserError: none, or several.
    """
    runs = [
        run
        for run in all_trial_runs(connect(uri))
        if run.info.run_id.startswith(trial) or run.data.tags["bermo.trial_id"].startswith(trial)
    ]
    if not runs:
        raise UserError(f"no trial {trial!r} in {uri}; `bermo-ray table STUDY` lists them")
    if len(runs) > 1:
        some = ", ".join(f"{r.info.run_id[:8]} of {r.data.tags['bermo.study']}" for r in runs[:3])
        raise UserError(f"{trial!r} may be any of {len(runs)} trials: {some}, …; give more digits")
    return runs[0]


def read_predictions(uri: str, trial: str) -> pa.Table:
    """A trial's answers on its dev set: ``row`` in the dev set, ``gold``, ``predicted``, ``right``.

    Raises:
        UserError: no such trial, or one that kept none.
    """
    from mlflow.exceptions import MlflowException

    run = find_trial(uri, trial)
    with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
        try:
            file = connect(uri).download_artifacts(run.info.run_id, PREDICTIONS_FILE, folder)
        except (MlflowException, OSError) as error:
            status = run.data.tags.get("bermo.status", "unknown")
            raise UserError(f"trial {trial} kept no predictions (it is {status})") from error
        return pq.read_table(file)


def trial_runs(client: Any, study_run: str) -> list[Any]:
    """The runs of all trials of a study, oldest first."""
    experiment = client.get_run(study_run).info.experiment_id
    return _all_pages(client, [experiment], f"tags.`mlflow.parentRunId` = '{study_run}'")


def all_trial_runs(client: Any) -> list[Any]:
    """The runs of all trials of all studies, oldest first."""
    return _all_runs(client, "trial")


def all_study_runs(client: Any) -> list[Any]:
    """The studies' own runs, oldest first."""
    return _all_runs(client, "study")


def _all_runs(client: Any, kind: str) -> list[Any]:
    experiments = [e.experiment_id for e in client.search_experiments()]
    return _all_pages(client, experiments, f"tags.`bermo.kind` = '{kind}'")


def _all_pages(client: Any, experiments: list[str], query: str) -> list[Any]:
    runs: list[Any] = []
    token = None
    while True:
        page = client.search_runs(
            experiments, query, max_results=1000, order_by=["start_time ASC"], page_token=token
        )
        runs += page
        token = page.token
        if not token:
            return runs


def delete_unfinished_trials(uri: str, study_run: str) -> None:
    """Removes the runs of trials that never ended: those trials start anew in other attempts."""
    client = connect(uri)
    for run in trial_runs(client, study_run):
        if not Status(run.data.tags["bermo.status"]).ended:
            client.delete_run(run.info.run_id)
