"""MLflow: a study is a parent run, a trial its child. The driver writes; workers only report.

Tags in our name: ``bermo.study`` (on both), ``bermo.kind`` (study, trial), ``bermo.trial_id``
(Tune's), ``bermo.status`` and ``bermo.reason``, ``bermo.checkpoint`` and its policy.
"""

import json
import logging
import os
import platform
import subprocess
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ray.tune import Callback

from bermo_ray.errors import UserError
from bermo_ray.trial import Trial

DATABASE = "mlflow.db"
CHECKPOINT_POLICY = "newest while running (with optimiser); weights only once ended; none else"
MAX_PARAM = 500  # characters of a parameter's value; the whole Trial is an artifact
# Report keys that are curves in MLflow; the rest of a Tune result is status, or Tune's own.
CURVES = (
    "epoch", "train_loss", "rows_per_second", "lambda", "metric", "loss", "trivial",
    "remaining", "density", "nonzero", "parameters",
)  # fmt: skip


def default_uri(runs: Path) -> str:
    """The store in a folder of runs: absolute, because Ray's workers change directory."""
    return f"sqlite:///{(runs / DATABASE).resolve()}"


def client(uri: str) -> Any:
    """A client of that store.

    Raises:
        UserError: the server does not answer, or the store can't be opened.
    """
    for name in ("alembic", "mlflow", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    if uri.startswith(("http://", "https://")):
        try:
            urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=10).close()
        except (urllib.error.URLError, OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            raise UserError(f"--tracking-uri: no MLflow server answers at {uri} ({why})") from error
    elif uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        found = MlflowClient(uri)
        found.search_experiments(max_results=1)  # makes the tables of a new store, once, here
    except (MlflowException, OSError) as error:
        raise UserError(
            f"--tracking-uri: can't open {uri}: {str(error).splitlines()[0]}"
        ) from error
    return found


def find_study(uri: str, name: str | None = None, kind: str | None = None) -> Any | None:
    """The newest study's parent run, of that name or experiment where given."""
    store = client(uri)
    experiments = [e.experiment_id for e in store.search_experiments()]
    if kind is not None:
        experiment = store.get_experiment_by_name(kind)
        experiments = [experiment.experiment_id] if experiment else []
    query = "tags.`bermo.kind` = 'study'"
    if name is not None:
        query += f" and tags.`bermo.study` = '{name}'"
    if not experiments:
        return None
    runs = store.search_runs(experiments, query, max_results=1, order_by=["start_time DESC"])
    return runs[0] if runs else None


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
        experiment = store.create_experiment(kind, artifact_location=place)
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


def facts() -> dict[str, str]:
    """What a reader needs to run it again: versions, commit, machine."""
    packages = ("torch", "transformers", "ray", "optuna", "mlflow", "datasets", "pyarrow", "numpy")
    found = {f"version.{name}": version(name) for name in packages}
    found |= {
        "version.python": platform.python_version(),
        "version.bermo_ray": version("bermo-ray"),
    }
    git = ["git", "-C", str(Path(__file__).parent)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode == 0:
        changed = subprocess.run(
            [*git, "status", "--porcelain"], capture_output=True, text=True, check=False
        ).stdout
        found["commit"] = head.stdout.strip() + (" with changes" if changed else "")
    return found


class Tracker(Callback):
    """Tune's callback that writes trials to MLflow: one batch a report.

    It is pickled with the experiment, so it holds plain values and opens the store when used.
    """

    def __init__(self, uri: str, study: str, parent: str) -> None:
        self.uri = uri
        self.study = study
        self.parent = parent
        self._reset()

    def __getstate__(self) -> dict[str, str]:
        return {"uri": self.uri, "study": self.study, "parent": self.parent}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__.update(state)
        self._reset()

    def _reset(self) -> None:
        self._store: Any = None
        self._runs: dict[str, str] = {}  # Tune's trial id -> MLflow run id
        self._steps: dict[str, int] = {}  # last step written

    @property
    def store(self) -> Any:
        if self._store is None:
            self._store = client(self.uri)
            for run in trial_runs(self._store, self.parent):
                trial_id = run.data.tags["bermo.trial_id"]
                self._runs[trial_id] = run.info.run_id
                steps = self._store.get_metric_history(run.info.run_id, "train_loss")
                self._steps[trial_id] = max((m.step for m in steps), default=0)
        return self._store

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A child run for a new trial; an old one that goes on is running again."""
        store = self.store
        if trial.trial_id in self._runs:
            store.update_run(self._runs[trial.trial_id], "RUNNING")
            return
        from mlflow.entities import Param

        spec = Trial.from_json(trial.config["trial"])
        tags = {
            "mlflow.parentRunId": self.parent,
            "bermo.kind": "trial",
            "bermo.study": self.study,
            "bermo.trial_id": trial.trial_id,
            "bermo.trial": spec.id,
            "bermo.trial_json": spec.to_json(),
            "bermo.status": "running",
            "bermo.checkpoint_policy": CHECKPOINT_POLICY,
        }
        experiment = store.get_run(self.parent).info.experiment_id
        method = spec.pruning.method if spec.pruning else "dense"
        label = f"{spec.fusion.name}-{method}-{spec.id[:6]}"
        run_id = store.create_run(experiment, run_name=label, tags=tags).info.run_id
        self._runs[trial.trial_id] = run_id
        params = [Param(k, str(v)[:MAX_PARAM]) for k, v in spec.flat().items() if v is not None]
        extra = [Param(f"run.{k}", str(v)) for k, v in trial.config["resources"].items()]
        store.log_batch(run_id, params=params + extra)
        store.log_text(run_id, json.dumps(json.loads(spec.to_json()), indent=1), "trial.json")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """The report's numbers at its step; after a resume, those that were missed too."""
        last = self._steps.get(trial.trial_id, 0)
        reports = [*result.get("history", []), result]
        fresh = {r["step"]: r for r in reports if r["step"] > last}
        for step in sorted(fresh):
            self._write(self._runs[trial.trial_id], fresh[step], step)
            self._steps[trial.trial_id] = step
        if result.get("final"):
            self._end(trial, result)

    def _write(self, run_id: str, report: dict[str, Any], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(k, float(report[k]), now, step) for k in CURVES if k in report]
        self.store.log_batch(run_id, metrics=metrics)

    def _end(self, trial: Any, result: dict[str, Any]) -> None:
        run_id, store = self._runs[trial.trial_id], self.store
        saved = result.get("checkpoint_path") or getattr(trial.checkpoint, "path", "") or ""
        tags = {
            "bermo.status": result["status"],
            "bermo.reason": result.get("reason", ""),
            "bermo.checkpoint": saved,
            "bermo.hardware": result.get("hardware", ""),
        }
        from mlflow.entities import RunTag

        store.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items() if v])
        if result.get("traceback"):
            store.log_text(run_id, result["traceback"], "traceback.txt")
        store.set_terminated(run_id, "FAILED" if result["status"] == "failed" else "FINISHED")

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        """Where the newest checkpoint lies; Tune deletes the one before it."""
        if trial.trial_id in self._runs:
            self.store.set_tag(self._runs[trial.trial_id], "bermo.checkpoint", checkpoint.path)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial whose process was lost more often than is retried."""
        reason = (
            "lost its process: " + (str(trial.get_error() or "").strip().splitlines() or [""])[-1]
        )
        self._end(trial, {"status": "failed", "reason": reason[:MAX_PARAM]})

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Trials that were cut off are marked so; a resumed study takes them up again."""
        for trial in trials:
            run_id = self._runs.get(trial.trial_id)
            if run_id and not trial.is_finished():
                self.store.set_tag(run_id, "bermo.status", "interrupted")
                self.store.set_terminated(run_id, "KILLED")


def trial_runs(store: Any, parent: str) -> list[Any]:
    """All child runs of a study, oldest first."""
    experiment = store.get_run(parent).info.experiment_id
    query = f"tags.`mlflow.parentRunId` = '{parent}'"
    runs: list[Any] = []
    token = None
    while True:
        page = store.search_runs(
            [experiment], query, max_results=1000, order_by=["start_time ASC"], page_token=token
        )
        runs += page
        token = page.token
        if not token:
            return runs
