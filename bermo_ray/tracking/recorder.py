"""Writes a study and its trials to MLflow, and survives a store that is away for a while.

The driver alone writes; workers only report.
"""

import json
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.record import (
    KEPT_WEIGHTS_FILE,
    PREDICTIONS_FILE,
    TRIAL_TAG,
    Draw,
    Report,
    Status,
    to_mlflow,
)
from bermo_ray.search.trial_names import describe_outcome, describe_trial, pick_varied_values
from bermo_ray.tracking import models, store
from bermo_ray.tracking.store import SQLITE
from bermo_ray.trial import Trial

CHECKPOINT_POLICY = "the newest two while running, with the optimiser; at the end weights only"
MAX_PARAM_LENGTH = 500  # characters; the complete Trial is an artifact
OUTAGE_SECONDS = 120.0  # how long a closing study waits for a store that is away


def open_study(uri: str, kind: str, name: str, params: Mapping[str, Any], plan_json: str) -> str:
    """Makes the parent run of a new study; gives its id."""
    from mlflow.entities import Param

    client = store.connect(uri)
    experiment = client.get_experiment_by_name(kind)
    if experiment:
        experiment_id = experiment.experiment_id
    else:
        artifacts = None
        if uri.startswith(SQLITE):  # else artifacts would go below the working directory
            artifacts = (Path(uri.removeprefix(SQLITE)).parent / "artifacts" / kind).as_uri()
        # Without this tag MLflow shows it with the tools for language-model traces.
        tags = {"mlflow.experimentKind": "custom_model_development"}
        experiment_id = client.create_experiment(kind, artifact_location=artifacts, tags=tags)
    tags = {"bermo.kind": "study", "bermo.study": name, "bermo.status": str(Status.RUNNING)}
    run = client.create_run(experiment_id, run_name=name, tags=tags | environment_tags())
    # What was not asked for is no parameter.
    asked = {k: v for k, v in params.items() if v not in (None, False, "", [], (), {})}
    given = [Param(key, str(value)[:MAX_PARAM_LENGTH]) for key, value in asked.items()]
    client.log_batch(run.info.run_id, params=given)
    client.log_text(run.info.run_id, plan_json, "plan.json")
    return str(run.info.run_id)


def reopen_study(uri: str, study_run: str) -> None:
    """Marks a study as running again."""
    client = store.connect(uri)
    client.set_tag(study_run, "bermo.status", str(Status.RUNNING))
    client.update_run(study_run, "RUNNING")


# What MLflow's UI shows, where a tick means a result. Our own code reads the tag `bermo.status`.
_MLFLOW_STATUS = {
    Status.RUNNING: "RUNNING",
    Status.COMPLETED: "FINISHED",
    Status.DIVERGED: "FAILED",
    Status.FAILED: "FAILED",
    Status.STOPPED: "KILLED",
    Status.INTERRUPTED: "KILLED",
}


def close_study(uri: str, study_run: str, status: Status) -> None:
    """Marks how the study ended."""
    client = store.connect(uri)
    client.set_tag(study_run, "bermo.status", str(status))
    client.set_terminated(study_run, _MLFLOW_STATUS[status])


def add_files(uri: str, run_id: str, files: Sequence[Path], folder: str | None = None) -> None:
    """Keeps files as artifacts of a run, in a folder among them if one is given."""
    client = store.connect(uri)
    for file in files:
        client.log_artifact(run_id, str(file), folder)


@cache
def environment_tags() -> dict[str, str]:
    """What a reader needs to run it again: versions, commit, machine."""
    packages = ("torch", "transformers", "ray", "optuna", "mlflow", "datasets", "pyarrow", "numpy")
    tags = {f"version.{name}": version(name) for name in packages}
    tags |= {
        "version.python": platform.python_version(),
        "version.bermo_ray": version("bermo-ray"),
    }
    head, changes = _ask_git("rev-parse", "HEAD"), _ask_git("status", "--porcelain")
    if head:
        tags["commit"] = head + (" with changes" if changes else "")
    return tags


def _ask_git(*words: str) -> str:
    """What git says of this checkout; nothing where there is no git, or no checkout."""
    if shutil.which("git") is None:
        return ""
    call = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()


class Recorder:
    """A :class:`bermo_ray.record.Listener` that writes trials to MLflow, one batch per report.

    A store that is away does not end the study: what could not be written is queued in order and
    written later.

    Args:
        uri: MLflow's store.
        study: Name of the study.
        study_run: Id of the study's own run, the parent of the trials'.
        resources: Where trials run, recorded as tags ``bermo.workers`` and so on.
        varied: The fields in which the trials of the study differ: they alone are parameters and
            name the runs, all others are in ``trial.json``. None: every field is a parameter.
        draw: Makes the figures of a trial that has ended, by file name.
        metric_of: Names the metric of a trial's task.
    """

    def __init__(
        self,
        uri: str,
        study: str,
        study_run: str,
        resources: Mapping[str, Any] | None = None,
        varied: Collection[str] | None = None,
        draw: Draw | None = None,
        metric_of: Callable[[Trial], str] | None = None,
    ) -> None:
        self.uri, self.study, self.study_run = uri, study, study_run
        self.resources, self.varied = resources or {}, varied
        self.draw, self.metric_of = draw, metric_of
        self._client: Any = None
        self._experiment_id = ""
        self._run_ids: dict[str, str] = {}  # by attempt
        self._trials: dict[str, Trial] = {}  # of those that were started, by attempt
        self._last_steps: dict[str, int] = {}  # written, by attempt
        self._models: dict[str, str] = {}  # of those that completed, by attempt
        self._checkpoints: dict[str, str] = {}  # that those models name
        self._ended: set[str] = set()
        self._started: set[str] = set()
        self._unfinished: set[str] = set()  # as an interrupted study left them in the store
        self._queue: list[Callable[[], None]] = []

    def on_open(self, most_trials: int, concurrent: int, where: str) -> None:
        """The study's own run is open already."""

    def on_start(self, attempt: str, trial: Trial) -> None:
        """A child run for a new trial; an old one that goes on is running again."""
        self._started.add(attempt)
        self._trials[attempt] = trial
        self._write(partial(self._start, attempt, trial))

    def on_known(self, attempt: str, trial: Trial, report: Report) -> None:
        """It is in the store already."""

    def on_report(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        """The reports' figures at their steps; after a resume, those that were missed too."""
        last = reports[-1]
        self._write(partial(self._log_reports, attempt, reports, checkpoint))
        if last.status.ended:
            self._ended.add(attempt)
            self._write(partial(self._end, attempt, last))
            self._write(partial(self._copy_predictions, attempt, checkpoint))

    def on_progress(self, attempt: str, share: float) -> None:
        pass

    def on_checkpoint(self, attempt: str, checkpoint: str) -> None:
        """Where the newest checkpoint lies; older ones are deleted."""
        self._write(lambda: self._tag(attempt, {"bermo.checkpoint": checkpoint}))
        self._write(partial(self._move_model, attempt, checkpoint))
        if attempt in self._ended:  # in one process the last checkpoint follows its report
            self._write(partial(self._copy_predictions, attempt, checkpoint))

    def on_refresh(self) -> None:
        """Nothing is drawn here."""

    def on_close(self) -> None:
        """Trials that were cut off are marked so; a resumed study takes them up again.

        Raises:
            UserError: the store stayed away, so that some records are not written.
        """
        for attempt in (self._started | self._unfinished) - self._ended:
            self._write(partial(self._interrupt, attempt))
        deadline = time.monotonic() + OUTAGE_SECONDS
        while self._queue and time.monotonic() < deadline:
            time.sleep(1)
            self._flush()
        if self._queue:
            lost = f"{len(self._queue)} records could not be written to {self.uri}"
            raise UserError(f"{lost}; resume the study once it is back")

    def _write(self, write: Callable[[], None]) -> None:
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

    def _connect(self) -> Any:
        """The client; at first, what an interrupted study has written already is looked up."""
        if self._client is None:
            client = store.connect(self.uri)
            for run in store.trial_runs(client, self.study_run):
                attempt = run.data.tags["bermo.attempt"]
                self._run_ids[attempt] = run.info.run_id
                if not Status(run.data.tags["bermo.status"]).ended:
                    self._unfinished.add(attempt)
                for output in run.outputs.model_outputs if run.outputs else ():
                    self._models[attempt] = output.model_id
                steps = client.get_metric_history(run.info.run_id, "step")
                self._last_steps[attempt] = max((m.step for m in steps), default=0)
            self._experiment_id = client.get_run(self.study_run).info.experiment_id
            self._client = client
        return self._client

    def _tag(self, attempt: str, tags: Mapping[str, str]) -> None:
        self._connect().log_batch(self._run_ids[attempt], tags=_to_tags(tags))

    def _start(self, attempt: str, trial: Trial) -> None:
        client = self._connect()
        if attempt in self._run_ids:
            client.update_run(self._run_ids[attempt], "RUNNING")
            self._tag(attempt, {"bermo.status": str(Status.RUNNING)})
            return
        name = describe_trial(trial, self.varied)
        tags = self._tags_of(attempt, trial) | environment_tags()
        run_id = client.create_run(self._experiment_id, run_name=name, tags=tags).info.run_id
        self._run_ids[attempt] = run_id
        client.log_batch(run_id, params=self._params_of(trial))
        models.log_data(client, run_id, trial)
        indented = json.dumps(json.loads(trial.to_json()), indent=1)
        client.log_text(run_id, indented, "trial.json")

    def _tags_of(self, attempt: str, trial: Trial) -> dict[str, str]:
        tags = {
            "mlflow.parentRunId": self.study_run,
            "bermo.kind": "trial",
            "bermo.study": self.study,
            "bermo.attempt": attempt,
            "bermo.trial_id": trial.id,
            "bermo.recipe": trial.recipe,
            TRIAL_TAG: trial.to_json(),
            "bermo.status": str(Status.RUNNING),
            "bermo.checkpoint_policy": CHECKPOINT_POLICY,
        }
        if self.metric_of is not None:
            tags["bermo.metric_name"] = self.metric_of(trial)
        return tags | {f"bermo.{name}": str(value) for name, value in self.resources.items()}

    def _params_of(self, trial: Trial) -> list[Any]:
        from mlflow.entities import Param

        values = self._varied_values(trial)
        return [Param(name, str(value)[:MAX_PARAM_LENGTH]) for name, value in values.items()]

    def _varied_values(self, trial: Trial) -> dict[str, object]:
        return pick_varied_values(trial, trial.flat() if self.varied is None else self.varied)

    def _log_reports(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        """Writes each report at its step; the last one with its tags, at once."""
        from mlflow.entities import Metric

        client, last_step = self._connect(), self._last_steps.get(attempt, 0)
        for step, report in sorted({r.step: r for r in reports}.items()):
            # A report told again adds no point to a curve, but may say where a run was resumed.
            is_new, is_last, now = step > last_step, report is reports[-1], int(time.time() * 1000)
            metrics, tags = to_mlflow(report, curves=is_new)
            if is_new or is_last:
                entries = [Metric(key, value, now, step) for key, value in metrics.items()]
                if is_last and report.status is Status.COMPLETED:
                    entries = self._link_to_model(attempt, entries, checkpoint)
                tags |= {"bermo.checkpoint": checkpoint} | self._describe_end(attempt, report)
                given = _to_tags(tags) if is_last else ()
                client.log_batch(self._run_ids[attempt], metrics=entries, tags=given)
                self._last_steps[attempt] = max(step, last_step)

    def _link_to_model(self, attempt: str, metrics: list[Any], checkpoint: str) -> list[Any]:
        """Makes the model of a trial that completed, once, and gives it the metrics."""
        trial, run_id = self._trials.get(attempt), self._run_ids[attempt]
        if trial is None:
            return metrics
        if attempt not in self._models:
            self._models[attempt] = models.create_model(
                self._connect(),
                (self._experiment_id, run_id),
                trial,
                self._varied_values(trial),
                checkpoint,
            )
            self._checkpoints[attempt] = checkpoint
        return models.link_metrics(metrics, self._models[attempt], run_id, trial)

    def _move_model(self, attempt: str, checkpoint: str) -> None:
        """Says on a model where its weights lie now."""
        if attempt in self._models and self._checkpoints.get(attempt) != checkpoint:
            tags = {"bermo.checkpoint": checkpoint}
            self._connect().set_logged_model_tags(self._models[attempt], tags)
            self._checkpoints[attempt] = checkpoint

    def _describe_end(self, attempt: str, report: Report) -> dict[str, str]:
        """How a trial ended, in its run's name; in its description, why it did not complete."""
        if not report.status.ended or attempt not in self._trials:
            return {}
        name = describe_trial(self._trials[attempt], self.varied)
        tags = {"mlflow.runName": f"{name} {describe_outcome(report)}"}
        if report.status is not Status.COMPLETED:
            reason = f": {report.reason}" if report.reason else ""
            tags["mlflow.note.content"] = f"**{str(report.status).capitalize()}**{reason}"
        return tags

    def _end(self, attempt: str, report: Report) -> None:
        run_id, client = self._run_ids[attempt], self._connect()
        if report.traceback:
            client.log_text(run_id, report.traceback, "traceback.txt")
        if report.kept_by_matrix:
            client.log_text(run_id, json.dumps(report.kept_by_matrix), KEPT_WEIGHTS_FILE)
        for name, figure in (self.draw(report) if self.draw else {}).items():
            client.log_figure(run_id, figure, name)
        if attempt in self._models:
            models.finish_model(client, self._models[attempt], run_id, report.step)
        client.set_terminated(run_id, _MLFLOW_STATUS[report.status])

    def _copy_predictions(self, attempt: str, checkpoint: str) -> None:
        """Copies the last checkpoint's predictions to the run's artifacts."""
        from pyarrow import fs

        if not checkpoint:
            return
        uri = checkpoint if "://" in checkpoint else Path(checkpoint).absolute().as_uri()
        try:
            filesystem, path = fs.FileSystem.from_uri(uri)
            with filesystem.open_input_stream(f"{path}/{PREDICTIONS_FILE}") as stream:
                content = stream.read()
        except (OSError, pa.ArrowException):  # they stay in the checkpoint; the study goes on
            self._tag(attempt, {"bermo.predictions": f"in {checkpoint} alone"})
            return
        with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
            copy = Path(folder) / PREDICTIONS_FILE
            copy.write_bytes(content)
            self._connect().log_artifact(self._run_ids[attempt], str(copy))

    def _interrupt(self, attempt: str) -> None:
        self._tag(attempt, {"bermo.status": str(Status.INTERRUPTED)})
        self._connect().set_terminated(self._run_ids[attempt], "KILLED")


def _to_tags(tags: Mapping[str, str]) -> list[Any]:
    """Tags as MLflow takes them, without empty ones."""
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in tags.items() if value]
