"""Where records lie and how to find them: MLflow runs of studies (parents) and trials (children).

Tags in our name: ``bermo.kind`` (study or trial), ``bermo.study`` (on both), ``bermo.attempt``
(which run of a trial within its study), ``bermo.taken.RUN`` (on a study: a trial that it took from
an earlier one), ``bermo.checkpoint``, ``bermo.checkpoint_removed`` (when it was cleaned away), and
those of :mod:`bermo_ray.record`.
"""

import http.client
import json
import logging
import os
import re
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bermo_ray.errors import UserError
from bermo_ray.passwords import hide_password
from bermo_ray.record import PREDICTIONS_FILE
from bermo_ray.tracking.addresses import (
    ADDRESS_VARIABLE,
    PASSWORD_VARIABLE,
    USER_VARIABLE,
    full_address,
    log_in,
    login_headers,
    take_password,
)

RUNS = "runs"  # the default folder of studies' records
DATABASE, ARTIFACTS = "mlflow.db", "artifacts"  # in that folder
STUDY_FILE = "study.json"  # in a study's folder: how it was started
SQLITE = "sqlite:///"
CHECKPOINT_TAG, REMOVED_TAG = "bermo.checkpoint", "bermo.checkpoint_removed"
_TAKEN, _TAGS_PER_BATCH = "bermo.taken.", 100  # MLflow takes no more tags at once
_RUN_ID = re.compile("[0-9a-f]{32}")  # a complete one
STORAGE_VARIABLE = "BERMO_STORAGE"  # stands in for Store.storage; set on a cluster's head


def store_uri(runs: Path, asked: str | None = None) -> str:
    """The MLflow store that is meant: the one asked for, MLFLOW_TRACKING_URI's, or SQLite in
    ``runs``.

    A file is named by its absolute path, because Ray's workers change directory. What a server or
    database is opened with is taken out of its address: see :func:`take_password`.
    """
    uri = asked or os.environ.get(ADDRESS_VARIABLE) or f"{SQLITE}{runs / DATABASE}"
    if uri.startswith(SQLITE):
        return f"{SQLITE}{Path(uri.removeprefix(SQLITE)).expanduser().absolute()}"
    return take_password(uri)


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

    def __post_init__(self) -> None:
        """Keeps no password where it would be shown."""
        if self.tracking_uri is not None:
            object.__setattr__(self, "tracking_uri", take_password(self.tracking_uri))

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

    def of_study(self, study: str) -> "Store":
        """The same with the storage that a study was started with, unless one is given here."""
        file = self.folder(study) / STUDY_FILE
        if self.storage or not file.is_file():
            return self
        return replace(self, storage=json.loads(file.read_text())["settings"].get("storage"))


def connect(uri: str) -> Any:
    """A client of that store.

    Raises:
        UserError: the server does not answer, or the store can't be opened.
    """
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # It logs every error that it raises, with its traceback; we say what comes of it.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    # With a server it prints an address for each trial, into the live display.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # A server that is away is asked again by us, not for two minutes within one call.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    uri = take_password(uri)
    if uri.startswith(("http://", "https://")):
        log_in(uri)
        _ping(uri)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if uri.startswith(SQLITE):
            Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(full_address(uri))
        client.search_experiments(max_results=1)  # makes the tables of a new store, once, here
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"tracking_uri: can't open {uri}: {why}{_login_hint(error)}") from error
    return client


# What MLflow answers to a record that it will never take. Not PERMISSION_DENIED: a login may have
# run out.
_REFUSALS = {
    "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS",
    "INVALID_STATE",
}  # fmt: skip
# Their errors are no OSErrors, and MLflow passes them on as they are.
_STORAGE_CLIENTS = {"azure", "boto3", "botocore", "google", "requests", "s3transfer", "urllib3"}


class RefusedError(Exception):
    """MLflow will never take this record."""


class NoStudyError(UserError):
    """There is no study of that name in the store."""


def is_refusal(error: Exception) -> bool:
    """Whether an error says that a store will never take or give what was asked, because something
    in it was removed or is another."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in _REFUSALS or _is_of_a_value(error)
    return isinstance(error, RefusedError | NoStudyError)


def _is_of_a_value(error: Exception) -> bool:
    """Whether MLflow's database can't hold a value. MLflow says BAD_REQUEST of all that it
    complains of, such as two studies that note the same data at once, but passes on the code by
    which SQLAlchemy's messages name their page."""
    from sqlalchemy.exc import DataError

    return f"/{DataError.code})" in str(error)


def is_outage(error: Exception) -> bool:
    """Whether an error comes of a store that can't be reached or written just now, so that the same
    call may go through later."""
    from mlflow.exceptions import MlflowException

    if is_refusal(error):
        return False
    if isinstance(error, UserError | OSError | MlflowException):
        return True
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return not packages.isdisjoint(_STORAGE_CLIENTS)


def first_line(error: Exception) -> str:
    """What an error says, in a line that has no password."""
    return hide_password((str(error).splitlines() or [type(error).__name__])[0])


def _ping(uri: str) -> None:
    try:
        request = urllib.request.Request(f"{uri.rstrip('/')}/health")
        for name, value in login_headers(uri).items():
            request.add_unredirected_header(name, value)  # for this server alone
        urllib.request.urlopen(request, timeout=10).close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "reason", error)
        line = f"tracking_uri: no MLflow server answers at {uri} ({why}){_login_hint(error)}"
        raise UserError(line) from error


def _login_hint(error: Exception) -> str:
    """What to do where a server wants to know who asks."""
    code = getattr(error, "code", None)
    if code is None and hasattr(error, "get_http_status_code"):
        code = error.get_http_status_code()
    if code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return ""
    return f"; set {USER_VARIABLE} and {PASSWORD_VARIABLE}"


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
    client = connect(uri)
    if _RUN_ID.fullmatch(trial) and (run := _find_run(client, trial)) is not None:
        return run
    runs = [
        run
        for run in all_trial_runs(client)
        if run.info.run_id.startswith(trial) or run.data.tags["bermo.trial_id"].startswith(trial)
    ]
    if not runs:
        raise UserError(f"no trial {trial!r} in {uri}; `bermo-ray table STUDY` lists them")
    if len(runs) > 1:
        some = ", ".join(f"{r.info.run_id[:8]} of {r.data.tags['bermo.study']}" for r in runs[:3])
        raise UserError(f"{trial!r} may be any of {len(runs)} trials: {some}, …; give more digits")
    return runs[0]


def _find_run(client: Any, run_id: str) -> Any | None:
    """The trial's run of that id, without listing those of all trials."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if not is_refusal(error):
            raise
        return None
    is_trial = run.data.tags.get("bermo.kind") == "trial"
    return run if is_trial and run.info.lifecycle_stage == "active" else None


def find_checkpoint(run: Any) -> str:
    """Where the checkpoint of a trial's run lies; empty where none is recorded.

    Raises:
        UserError: it was removed.
    """
    tags = run.data.tags
    if REMOVED_TAG in tags:
        raise UserError(
            f"the checkpoint of trial {tags['bermo.trial_id'][:6]} was removed by `bermo-ray "
            f"clean` on {tags[REMOVED_TAG][:10]}; to have it again, run its study with --fresh"
        )
    return str(tags.get(CHECKPOINT_TAG, ""))


def mark_removed(client: Any, run_id: str) -> None:
    """Records with a trial that its checkpoint is no more; all else that is recorded stays."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    client.set_tag(run_id, REMOVED_TAG, now)


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


def trial_runs(client: Any, study_run: str, attempt: str | None = None) -> list[Any]:
    """The runs of all trials of a study, oldest first; or of one attempt alone."""
    experiment = client.get_run(study_run).info.experiment_id
    query = f"tags.`mlflow.parentRunId` = '{study_run}'"
    if attempt is not None:
        query += f" and tags.`bermo.attempt` = '{attempt}'"
    return _all_pages(client, [experiment], query)


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
