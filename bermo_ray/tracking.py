"""MLflow: a study is a parent run, a trial its child. The driver writes; workers only report.

Tags in our name: ``bermo.study`` (on both), ``bermo.kind`` (study, trial), ``bermo.trial_id``
(Tune's), ``bermo.status`` and ``bermo.reason``, ``bermo.checkpoint`` and its policy.
"""

import json
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ray.tune import Callback

from bermo_ray.errors import UserError
from bermo_ray.trial import Trial

DATABASE = "mlflow.db"
Draw = Callable[[dict[str, Any]], dict[str, Any]]  # a final report -> figures by file name
CHECKPOINT_POLICY = "the newest two while running, with the optimiser; at the end weights only"
MAX_PARAM = 500  # characters of a parameter's value; the whole Trial is an artifact
# Report keys that are curves in MLflow; the rest of a Tune result is status, or Tune's own.
CURVES = (
    "epoch", "train_loss", "rows_per_second", "lambda", "metric", "loss", "trivial",
    "remaining", "density", "nonzero", "parameters", "gamma", "layers", "latency", "bytes",
    "first_half", "second_half",
)  # fmt: skip
OTHER = "metric/"  # before the names of a task's further metrics and dev sets
PREDICTIONS = "predictions.parquet"  # a trial's answers on its dev set, in checkpoint and artifacts


def store_uri(runs: Path, asked: str | None = None) -> str:
    """The store that is meant: the one asked for, MLFLOW_TRACKING_URI's, or SQLite in ``runs``.

    A file is named by its absolute path, because Ray's workers change directory.
    """
    uri = asked or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs / DATABASE}"
    if uri.startswith("sqlite:///"):
        file = Path(uri.removeprefix("sqlite:///")).expanduser()
        return f"sqlite:///{file.absolute()}"
    return uri


def client(uri: str) -> Any:
    """A client of that store.

    Raises:
        UserError: the server does not answer, or the store can't be opened.
    """
    for name in ("alembic", "mlflow", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    if uri.startswith(("http://", "https://")):
        try:
            urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=10).close()
        except (urllib.error.URLError, OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            raise UserError(f"--tracking-uri: no MLflow server answers at {uri} ({why})") from error
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        if uri.startswith("sqlite:///"):
            Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        found = MlflowClient(uri)
        found.search_experiments(max_results=1)  # makes the tables of a new store, once, here
    except (MlflowException, OSError) as error:
        raise UserError(
            f"--tracking-uri: can't open {uri}: {str(error).splitlines()[0]}"
        ) from error
    return found


def find_study(uri: str, name: str) -> Any | None:
    """The parent run of the study of that name; the newest, where there were several."""
    store = client(uri)
    experiments = [e.experiment_id for e in store.search_experiments()]
    query = f"tags.`bermo.kind` = 'study' and tags.`bermo.study` = '{name}'"
    runs = store.search_runs(experiments, query, max_results=1, order_by=["start_time DESC"])
    return runs[0] if runs else None


def find_trial(uri: str, run: str) -> Any:
    """A trial's run by its MLflow id or its trial's id, whole or the first digits of one.

    Raises:
        UserError: none, or several.
    """
    found = [
        r for r in all_trials(client(uri))
        if r.info.run_id.startswith(run) or r.data.tags["bermo.trial"].startswith(run)
    ]  # fmt: skip
    if not found:
        raise UserError(f"no trial {run!r} in {uri}; `bermo-ray table STUDY` lists them")
    if len(found) > 1:
        some = ", ".join(f"{r.info.run_id[:8]} of {r.data.tags['bermo.study']}" for r in found[:3])
        raise UserError(f"{run!r} may be any of {len(found)} trials: {some}, …; give more digits")
    return found[0]


def predictions(uri: str, run: str) -> pa.Table:
    """A trial's answers on its dev set: ``row`` in the whole set, ``target``, ``predicted``.

    Raises:
        UserError: no such trial, or one that kept none.
    """
    from mlflow.exceptions import MlflowException

    found = find_trial(uri, run)
    with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
        try:
            file = client(uri).download_artifacts(found.info.run_id, PREDICTIONS, folder)
        except (MlflowException, OSError) as error:
            status = found.data.tags.get("bermo.status", "unknown")
            raise UserError(f"trial {run} kept no predictions (it is {status})") from error
        return pq.read_table(file)


def open_study(uri: str, kind: str, name: str, params: dict[str, Any], space: str) -> str:
    """Makes the parent run of a new study; gives its id."""
    store = client(uri)
    found = store.get_experiment_by_name(kind)
    if found:
        experiment = found.experiment_id
    else:
        place = None
        if uri.startswith("sqlite:///"):  # else artifacts would go below the working directory
            place = (Path(uri.removeprefix("sqlite:///")).parent / "artifacts" / kind).as_uri()
        # Else MLflow shows it with the tools for language-model traces.
        look = {"mlflow.experimentKind": "custom_model_development"}
        experiment = store.create_experiment(kind, artifact_location=place, tags=look)
    tags = {"bermo.kind": "study", "bermo.study": name, "bermo.status": "running"}
    run = store.create_run(experiment, run_name=name, tags=tags | facts())
    for key, value in params.items():
        store.log_param(run.info.run_id, key, str(value)[:MAX_PARAM])
    store.log_text(run.info.run_id, space, "space.json")
    return str(run.info.run_id)


def close_study(uri: str, run_id: str, status: str, files: list[Path]) -> None:
    """Marks the study ``completed`` or ``interrupted`` and keeps its files as artifacts."""
    store = client(uri)
    for file in files:
        store.log_artifact(run_id, str(file))
    store.set_tag(run_id, "bermo.status", status)
    store.set_terminated(run_id, "FINISHED" if status == "completed" else "KILLED")


def reopen_study(uri: str, run_id: str) -> None:
    """Marks a study as running again."""
    store = client(uri)
    store.set_tag(run_id, "bermo.status", "running")
    store.update_run(run_id, "RUNNING")


@cache
def facts() -> dict[str, str]:
    """What a reader needs to run it again: versions, commit, machine."""
    packages = ("torch", "transformers", "ray", "optuna", "mlflow", "datasets", "pyarrow", "numpy")
    found = {f"version.{name}": version(name) for name in packages}
    found |= {
        "version.python": platform.python_version(),
        "version.bermo_ray": version("bermo-ray"),
    }
    head, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    if head:
        found["commit"] = head + (" with changes" if changed else "")
    return found


def _git(*words: str) -> str:
    """What git says of this checkout; nothing where there is no git, or no checkout."""
    if shutil.which("git") is None:
        return ""
    call = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()


class Tracker(Callback):
    """Tune's callback that writes trials to MLflow: one batch a report.

    It is pickled with the experiment, so it holds plain values and opens the store when used. A
    store that is away for a while does not end the study: what could not be written is kept in
    order and written later. ``draw(report)`` gives a finished trial's figures by file name.
    """

    PATIENCE = 120.0  # seconds to wait for the store at the end

    def __init__(self, uri: str, study: str, parent: str, draw: Draw | None = None) -> None:
        self.uri = uri
        self.study = study
        self.parent = parent
        self.draw = draw
        self._reset()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def _reset(self) -> None:
        self._store: Any = None
        self._runs: dict[str, str] = {}  # Tune's trial id -> MLflow run id
        self._steps: dict[str, int] = {}  # last step written
        self._ended: set[str] = set()
        self._queue: list[Callable[[], None]] = []

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A child run for a new trial; an old one that goes on is running again."""
        self._do(partial(self._start, trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """The report's numbers at its step; after a resume, those that were missed too."""
        self._do(partial(self._report, trial, result))
        if result.get("final"):
            self._ended.add(trial.trial_id)
            self._do(partial(self._end, trial, result))
            place = _with_scheme(trial, result.get("checkpoint_path", ""))
            self._do(partial(self._predictions, trial.trial_id, place))

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        """Where the newest checkpoint lies; Tune deletes older ones."""
        tags = {"bermo.checkpoint": _with_scheme(trial, checkpoint.path)}
        self._do(lambda: self._tag(trial.trial_id, tags))
        if trial.trial_id in self._ended:  # in one process the last checkpoint follows its report
            self._do(partial(self._predictions, trial.trial_id, tags["bermo.checkpoint"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial whose process was lost more often than is retried."""
        lines = str(trial.get_error() or "").strip().splitlines() or [""]
        reason = f"lost its process: {lines[-1]}"[:MAX_PARAM]
        self._ended.add(trial.trial_id)
        self._do(partial(self._start, trial))
        self._do(partial(self._end, trial, {"status": "failed", "reason": reason}))

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Trials that were cut off are marked so; a resumed study takes them up again."""
        for trial in trials:
            # Tune has already called them terminated, so that our own record decides.
            ended = trial.trial_id in self._ended or (trial.last_result or {}).get("final")
            if trial.trial_id in self._runs and not ended:
                self._do(partial(self._interrupt, trial))
        deadline = time.monotonic() + self.PATIENCE
        while self._queue and time.monotonic() < deadline:
            time.sleep(1)
            self._flush()
        if self._queue:
            lost = f"{len(self._queue)} records could not be written to {self.uri}"
            raise UserError(f"{lost}; --resume once it is back")

    def _do(self, write: Callable[[], None]) -> None:
        self._queue.append(write)
        self._flush()

    def _flush(self) -> None:
        from mlflow.exceptions import MlflowException

        while self._queue:
            try:
                self._queue[0]()
            except (MlflowException, UserError, OSError):
                return
            self._queue.pop(0)

    def _open(self) -> Any:
        if self._store is None:
            store = client(self.uri)
            for run in trial_runs(store, self.parent):
                trial_id = run.data.tags["bermo.trial_id"]
                self._runs[trial_id] = run.info.run_id
                steps = store.get_metric_history(run.info.run_id, "epoch")
                self._steps[trial_id] = max((m.step for m in steps), default=0)
            self._store = store
        return self._store

    def _tag(self, trial_id: str, tags: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        kept = [RunTag(k, v) for k, v in tags.items() if v]
        self._open().log_batch(self._runs[trial_id], tags=kept)

    def _start(self, trial: Any) -> None:
        from mlflow.entities import Param

        store = self._open()
        if trial.trial_id in self._runs:
            store.update_run(self._runs[trial.trial_id], "RUNNING")
            self._tag(trial.trial_id, {"bermo.status": "running"})
            return
        spec = Trial.from_json(trial.config["trial"])
        tags = {
            "mlflow.parentRunId": self.parent,
            "bermo.kind": "trial",
            "bermo.study": self.study,
            "bermo.trial_id": trial.trial_id,
            "bermo.trial": spec.id,
            "bermo.recipe": spec.recipe,
            "bermo.trial_json": spec.to_json(),
            "bermo.status": "running",
            "bermo.checkpoint_policy": CHECKPOINT_POLICY,
        }
        experiment = store.get_run(self.parent).info.experiment_id
        method = spec.pruning.method if spec.pruning else "dense"
        label = f"{spec.fusion.name}-{method}-{spec.id[:6]}"
        run = store.create_run(experiment, run_name=label, tags=tags | facts())
        self._runs[trial.trial_id] = run.info.run_id
        params = [Param(k, str(v)[:MAX_PARAM]) for k, v in spec.flat().items() if v is not None]
        extra = [Param(f"run.{k}", str(v)) for k, v in trial.config["resources"].items()]
        store.log_batch(run.info.run_id, params=params + extra)
        text = json.dumps(json.loads(spec.to_json()), indent=1)
        store.log_text(run.info.run_id, text, "trial.json")

    def _report(self, trial: Any, result: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        store, trial_id = self._open(), trial.trial_id
        last = self._steps.get(trial_id, 0)
        reports = [*result.get("history", []), result]
        fresh = {r["step"]: r for r in reports if r["step"] > last}
        for step in sorted(fresh):
            now, report = int(time.time() * 1000), fresh[step]
            metrics = [Metric(k, float(report[k]), now, step) for k in CURVES if k in report]
            for name, value in report.get("others", {}).items():
                metrics.append(Metric(f"{OTHER}{name}", value, now, step))
            for index, weight in enumerate(report.get("mixing", [])):
                metrics.append(Metric(f"mixing/{index:02d}", weight, now, step))
            store.log_batch(self._runs[trial_id], metrics=metrics)
            self._steps[trial_id] = step
        tags = {"bermo.checkpoint": _with_scheme(trial, result.get("checkpoint_path", ""))}
        if result.get("resumed_at"):
            tags["bermo.resumed_at"] = str(result["resumed_at"])
        self._tag(trial_id, tags)

    def _end(self, trial: Any, result: dict[str, Any]) -> None:
        run_id, store = self._runs[trial.trial_id], self._open()
        keys = ("status", "reason", "hardware")
        tags = {f"bermo.{k}": result.get(k, "") for k in keys}
        tags["bermo.dropped"] = json.dumps(result["dropped"]) if result.get("dropped") else ""
        self._tag(trial.trial_id, tags)
        if result.get("traceback"):
            store.log_text(run_id, result["traceback"], "traceback.txt")
        for name, figure in (self.draw(result) if self.draw else {}).items():
            store.log_figure(run_id, figure, name)
        store.set_terminated(run_id, "FAILED" if result["status"] == "failed" else "FINISHED")

    def _predictions(self, trial_id: str, checkpoint: str) -> None:
        """Copies the last checkpoint's predictions to the run's artifacts."""
        from pyarrow import fs

        if not checkpoint:
            return
        place = checkpoint if "://" in checkpoint else Path(checkpoint).absolute().as_uri()
        try:
            found, path = fs.FileSystem.from_uri(place)
            with found.open_input_stream(f"{path}/{PREDICTIONS}") as stream:
                content = stream.read()
        except (OSError, pa.ArrowException):  # they stay in the checkpoint; the study goes on
            self._tag(trial_id, {"bermo.predictions": f"in {checkpoint} alone"})
            return
        with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
            copy = Path(folder) / PREDICTIONS
            copy.write_bytes(content)
            self._open().log_artifact(self._runs[trial_id], str(copy))

    def _interrupt(self, trial: Any) -> None:
        self._tag(trial.trial_id, {"bermo.status": "interrupted"})
        self._open().set_terminated(self._runs[trial.trial_id], "KILLED")


def _with_scheme(trial: Any, path: str) -> str:
    """Ray names a checkpoint in a bucket without the scheme of its storage."""
    scheme, mark, _ = str(trial.config.get("storage", "")).partition("://")
    return f"{scheme}://{path}" if mark and path and "://" not in path else path


def forget_unfinished(uri: str, parent: str) -> None:
    """Removes child runs that never ended: their trials start anew under other names."""
    store = client(uri)
    for run in trial_runs(store, parent):
        if run.data.tags["bermo.status"] in ("running", "interrupted"):
            store.delete_run(run.info.run_id)


def trial_runs(store: Any, parent: str) -> list[Any]:
    """All child runs of a study, oldest first."""
    experiment = store.get_run(parent).info.experiment_id
    return _pages(store, [experiment], f"tags.`mlflow.parentRunId` = '{parent}'")


def all_trials(store: Any) -> list[Any]:
    """The runs of all trials of all studies, oldest first."""
    experiments = [e.experiment_id for e in store.search_experiments()]
    return _pages(store, experiments, "tags.`bermo.kind` = 'trial'")


def _pages(store: Any, experiments: list[str], query: str) -> list[Any]:
    runs: list[Any] = []
    token = None
    while True:
        page = store.search_runs(
            experiments, query, max_results=1000, order_by=["start_time ASC"], page_token=token
        )
        runs += page
        token = page.token
        if not token:
            return runs
