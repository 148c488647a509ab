"""Writes the records of a study's trials to MLflow: each is written once, however often it is sent.

An event is a dict of JSON: ``{"start": attempt, "trial": …}``, ``{"report": attempt, "reports":
[…], "checkpoint": …}``, ``{"interrupt": attempt}``, ``{"taken": {run: study}}`` or ``{"close":
status}``, each with its ``time`` in ms.
"""

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

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
from bermo_ray.tracking.journal import Event
from bermo_ray.tracking.study_run import MAX_PARAM_LENGTH, MLFLOW_STATUS, environment_tags
from bermo_ray.trial import Trial

CHECKPOINT_POLICY = "the newest while running, with the optimiser; at the end weights only"


class TrialWriter:
    """Writes one event after the other. An event that fails may be sent again.

    Args:
        uri: MLflow's store.
        study: Name of the study.
        study_run: Id of the study's own run, the parent of the trials'.
        resources: Where trials run, recorded as tags ``bermo.workers`` and so on.
        varied: The fields in which the trials of the study differ: they alone are parameters and
            name the runs, all others are in ``trial.json``. None: every field is a parameter.
        draw: Makes the figures of a trial that has ended, by file name.
    """

    def __init__(
        self,
        uri: str,
        study: str,
        study_run: str,
        resources: Mapping[str, Any] | None = None,
        varied: Collection[str] | None = None,
        draw: Draw | None = None,
    ) -> None:
        self.uri, self.study, self.study_run = uri, study, study_run
        self.resources, self.varied, self.draw = resources or {}, varied, draw
        self.run_ids: dict[str, str] = {}  # by attempt
        self._trials: dict[str, Trial] = {}  # of those that were started, by attempt
        self._client: Any = None
        self._experiment_id = ""
        self._last_steps: dict[str, int] = {}  # written, by attempt
        self._models: dict[str, str] = {}  # of those that completed, by attempt

    def send(self, event: Event) -> None:
        """Writes an event."""
        self.note(event)
        try:
            self._send(event, event["time"])
        except Exception:
            self._client = None  # what arrived of it is looked up before it is sent again
            raise

    def _send(self, event: Event, time: int) -> None:
        if "start" in event:
            self._start(event["start"], event["metric_name"], time)
        elif "report" in event:
            reports = [Report.from_dict(report) for report in event["reports"]]
            self._log_reports(event["report"], reports, event["checkpoint"], time)
            if reports[-1].status.ended:
                self._end(event["report"], reports[-1], time)
                self._copy_predictions(event["report"], event["checkpoint"])
        elif "interrupt" in event:
            self._tag(event["interrupt"], {"bermo.status": str(Status.INTERRUPTED)})
            self._connect().set_terminated(self.run_ids[event["interrupt"]], "KILLED", time)
        elif "taken" in event:
            store.add_taken_runs(self.uri, self.study_run, event["taken"])
        elif "close" in event:
            status, client = Status(event["close"]), self._connect()
            client.set_tag(self.study_run, "bermo.status", str(status))
            client.set_terminated(self.study_run, MLFLOW_STATUS[status], time)

    def note(self, event: Event) -> None:
        """Remembers of an event, written by whomever, what later ones need."""
        if "start" in event:
            self._trials[event["start"]] = Trial.from_dict(event["trial"])

    def describe(self, attempt: str, metric_name: str) -> dict[str, str]:
        """The tags that a trial's run has from its start."""
        return self._tags_of(attempt, self._trials[attempt], metric_name) | environment_tags()

    def _connect(self) -> Any:
        """The client; at first, what an interrupted study has written already is looked up."""
        if self._client is None:
            client = store.connect(self.uri)
            for run in store.trial_runs(client, self.study_run):
                attempt = run.data.tags["bermo.attempt"]
                self.run_ids[attempt] = run.info.run_id
                for output in run.outputs.model_outputs if run.outputs else ():
                    self._models[attempt] = output.model_id
                steps = client.get_metric_history(run.info.run_id, "step")
                self._last_steps[attempt] = max((m.step for m in steps), default=0)
            self._experiment_id = client.get_run(self.study_run).info.experiment_id
            self._client = client
        return self._client

    def _tag(self, attempt: str, tags: Mapping[str, str]) -> None:
        self._connect().log_batch(self.run_ids[attempt], tags=_to_tags(tags))

    def _start(self, attempt: str, metric_name: str, time: int) -> None:
        client, trial = self._connect(), self._trials[attempt]
        if attempt in self.run_ids:  # it goes on, or its start was cut off
            client.update_run(self.run_ids[attempt], "RUNNING")
            self._tag(attempt, {"bermo.status": str(Status.RUNNING)})
        else:
            name, tags = describe_trial(trial, self.varied), self.describe(attempt, metric_name)
            run = client.create_run(self._experiment_id, time, tags, name)
            self.run_ids[attempt] = run.info.run_id
        run_id = self.run_ids[attempt]
        client.log_batch(run_id, params=self._params_of(trial))
        models.log_data(client, run_id, trial)
        indented = json.dumps(json.loads(trial.to_json()), indent=1)
        client.log_text(run_id, indented, "trial.json")

    def _tags_of(self, attempt: str, trial: Trial, metric_name: str) -> dict[str, str]:
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
        if metric_name:
            tags["bermo.metric_name"] = metric_name
        return tags | {f"bermo.{name}": str(value) for name, value in self.resources.items()}

    def _params_of(self, trial: Trial) -> list[Any]:
        from mlflow.entities import Param

        values = self._varied_values(trial)
        return [Param(name, str(value)[:MAX_PARAM_LENGTH]) for name, value in values.items()]

    def _varied_values(self, trial: Trial) -> dict[str, object]:
        return pick_varied_values(trial, trial.flat() if self.varied is None else self.varied)

    def _log_reports(
        self, attempt: str, reports: Sequence[Report], checkpoint: str, time: int
    ) -> None:
        """Writes each report at its step; the last one with its tags, at once."""
        from mlflow.entities import Metric

        client, last_step = self._connect(), self._last_steps.get(attempt, 0)
        for step, report in sorted({r.step: r for r in reports}.items()):
            # A report told again adds no point to a curve, but may say where a run was resumed.
            is_new, is_last = step > last_step, report is reports[-1]
            metrics, tags = to_mlflow(report, curves=is_new)
            if is_new or is_last:
                entries = [Metric(key, value, time, step) for key, value in metrics.items()]
                if is_last and report.status is Status.COMPLETED:
                    entries = self._link_to_model(attempt, entries, checkpoint)
                tags |= {"bermo.checkpoint": checkpoint} | self._describe_end(attempt, report)
                given = _to_tags(tags) if is_last else ()
                client.log_batch(self.run_ids[attempt], metrics=entries, tags=given)
                self._last_steps[attempt] = max(step, last_step)

    def _link_to_model(self, attempt: str, metrics: list[Any], checkpoint: str) -> list[Any]:
        """Makes the model of a trial that completed, once, and gives it the metrics."""
        trial, run_id = self._trials[attempt], self.run_ids[attempt]
        if attempt not in self._models:
            self._models[attempt] = models.create_model(
                self._connect(),
                (self._experiment_id, run_id),
                trial,
                self._varied_values(trial),
                checkpoint,
            )
        return models.link_metrics(metrics, self._models[attempt], run_id, trial)

    def _describe_end(self, attempt: str, report: Report) -> dict[str, str]:
        """How a trial ended, in its run's name; in its description, why it did not complete."""
        if not report.status.ended:
            return {}
        name = describe_trial(self._trials[attempt], self.varied)
        tags = {"mlflow.runName": f"{name} {describe_outcome(report)}"}
        if report.status is not Status.COMPLETED:
            reason = f": {report.reason}" if report.reason else ""
            tags["mlflow.note.content"] = f"**{str(report.status).capitalize()}**{reason}"
        return tags

    def _end(self, attempt: str, report: Report, time: int) -> None:
        run_id, client = self.run_ids[attempt], self._connect()
        if report.traceback:
            client.log_text(run_id, report.traceback, "traceback.txt")
        if report.kept_by_matrix:
            client.log_text(run_id, json.dumps(report.kept_by_matrix), KEPT_WEIGHTS_FILE)
        for name, figure in (self.draw(report) if self.draw else {}).items():
            client.log_figure(run_id, figure, name)
        if attempt in self._models:
            models.finish_model(client, self._models[attempt], run_id, report.step)
        client.set_terminated(run_id, MLFLOW_STATUS[report.status], time)

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
            self._connect().log_artifact(self.run_ids[attempt], str(copy))


def _to_tags(tags: Mapping[str, str]) -> list[Any]:
    """Tags as MLflow takes them, without empty ones."""
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in tags.items() if value]
