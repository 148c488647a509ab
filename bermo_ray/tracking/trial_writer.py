"""Writes the records of a study's trials to MLflow: each is written once, however often it is sent.

An event is a dict of JSON: ``{"start": attempt, "trial": …}``, ``{"report": attempt, "reports":
[…], "checkpoint": …}``, ``{"interrupt": attempt}``, ``{"taken": {run: study}}`` or ``{"close":
status}``, each with its ``time`` in ms.
"""

import json
import tempfile
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from bermo_ray.tracking.folders import read_file
from bermo_ray.tracking.journal import Event, attempt_of
from bermo_ray.tracking.study_run import MAX_PARAM_LENGTH, MLFLOW_STATUS, environment_tags
from bermo_ray.trial import Trial

FIGURES_ERROR_FILE = "figures_error.txt"  # why a trial's run has no figures
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
        self.trials: dict[str, Trial] = {}  # of those that were started, by attempt
        self._client: Any = None
        self._experiment_id = ""
        # By attempt, as far as they are known; what is not in them is looked up where it matters.
        self._last_steps: dict[str, int] = {}  # written
        self._models: dict[str, str] = {}  # of those that completed
        self._doubtful: set[str] = set()  # may have a run that this process has not heard of

    def send(self, event: Event) -> None:
        """Writes an event.

        Raises:
            Exception: of MLflow or its storage; :func:`bermo_ray.tracking.store.is_outage` and
                :func:`bermo_ray.tracking.store.is_refusal` tell what it means.
        """
        self.note(event)
        try:
            self._send(event, event["time"])
        except Exception as error:
            self._forget(attempt_of(event))
            if not store.is_refusal(error):
                self._client = None
                self._doubtful.add(attempt_of(event))
            raise

    def _forget(self, attempt: str) -> None:
        """Has looked up what arrived of a trial before more of it is sent."""
        self._last_steps.pop(attempt, None)
        self._models.pop(attempt, None)

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
            self._connect().set_terminated(self._run_of(event["interrupt"]), "KILLED", time)
        elif "taken" in event:
            store.add_taken_runs(self.uri, self.study_run, event["taken"])
        elif "close" in event:
            status, client = Status(event["close"]), self._connect()
            client.set_tag(self.study_run, "bermo.status", str(status))
            client.set_terminated(self.study_run, MLFLOW_STATUS[status], time)

    def note(self, event: Event) -> None:
        """Remembers of an event, written by whomever, what later ones need."""
        if "start" in event:
            self.trials[event["start"]] = Trial.from_dict(event["trial"])

    def describe(self, attempt: str, metric_name: str) -> dict[str, str]:
        """The tags that a trial's run has from its start."""
        return self._tags_of(attempt, self.trials[attempt], metric_name) | environment_tags()

    def _connect(self) -> Any:
        """The client; at first, the runs that an interrupted study has made are listed."""
        if self._client is None:
            client = store.connect(self.uri)
            if not self._experiment_id:
                for run in store.trial_runs(client, self.study_run):
                    self.run_ids[run.data.tags["bermo.attempt"]] = run.info.run_id
                self._experiment_id = client.get_run(self.study_run).info.experiment_id
            self._client = client
        return self._client

    def _find_run(self, attempt: str) -> str | None:
        """The id of a trial's run, if it has one."""
        client = self._connect()
        if attempt not in self.run_ids and attempt in self._doubtful:
            for run in store.trial_runs(client, self.study_run, attempt):
                self.run_ids[attempt] = run.info.run_id
        self._doubtful.discard(attempt)
        return self.run_ids.get(attempt)

    def _run_of(self, attempt: str) -> str:
        """The id of a trial's run.

        Raises:
            RefusedError: it has none, because MLflow refused to make one.
        """
        run_id = self._find_run(attempt)
        if run_id is None:
            raise store.RefusedError("there is no run of this trial")
        return run_id

    def _last_step_of(self, attempt: str) -> int:
        """The last step whose metrics MLflow has."""
        if attempt not in self._last_steps:
            steps = self._connect().get_metric_history(self._run_of(attempt), "step")
            self._last_steps[attempt] = max((metric.step for metric in steps), default=0)
        return self._last_steps[attempt]

    def _tag(self, attempt: str, tags: Mapping[str, str]) -> None:
        self._connect().log_batch(self._run_of(attempt), tags=_to_tags(tags))

    def _start(self, attempt: str, metric_name: str, time: int) -> None:
        client, trial = self._connect(), self.trials[attempt]
        run_id = self._find_run(attempt)
        if run_id is not None:  # it goes on, or its start was cut off
            client.update_run(run_id, "RUNNING")
            self._tag(attempt, {"bermo.status": str(Status.RUNNING)})
        else:
            name, tags = describe_trial(trial, self.varied), self.describe(attempt, metric_name)
            run = client.create_run(self._experiment_id, time, tags, name)
            run_id = str(run.info.run_id)
            self.run_ids[attempt], self._last_steps[attempt] = run_id, 0
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

        client, run_id = self._connect(), self._run_of(attempt)
        last_step = self._last_step_of(attempt)
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
                client.log_batch(run_id, metrics=entries, tags=given)
                self._last_steps[attempt] = max(step, last_step)

    def _link_to_model(self, attempt: str, metrics: list[Any], checkpoint: str) -> list[Any]:
        """Makes the model of a trial that completed, once, and gives it the metrics."""
        client, trial, run_id = self._connect(), self.trials[attempt], self._run_of(attempt)
        if attempt not in self._models:
            run = (self._experiment_id, run_id)
            self._models[attempt] = models.find_model(client, run) or models.create_model(
                client, run, trial, self._varied_values(trial), checkpoint
            )
        return models.link_metrics(metrics, self._models[attempt], run_id, trial)

    def _describe_end(self, attempt: str, report: Report) -> dict[str, str]:
        """How a trial ended, in its run's name; in its description, why it did not complete."""
        if not report.status.ended:
            return {}
        name = describe_trial(self.trials[attempt], self.varied)
        tags = {"mlflow.runName": f"{name} {describe_outcome(report)}"}
        if report.status is not Status.COMPLETED:
            reason = f": {report.reason}" if report.reason else ""
            tags["mlflow.note.content"] = f"**{str(report.status).capitalize()}**{reason}"
        return tags

    def _end(self, attempt: str, report: Report, time: int) -> None:
        client, run_id = self._connect(), self._run_of(attempt)
        if report.traceback:
            client.log_text(run_id, report.traceback, "traceback.txt")
        if report.kept_by_matrix:
            client.log_text(run_id, json.dumps(report.kept_by_matrix), KEPT_WEIGHTS_FILE)
        self._draw(run_id, report)
        if attempt in self._models:
            models.finish_model(client, self._models[attempt], run_id, report.step)
        client.set_terminated(run_id, MLFLOW_STATUS[report.status], time)

    def _draw(self, run_id: str, report: Report) -> None:
        """Draws a trial's figures. One that can't be drawn is not worth the study."""
        client = self._connect()
        try:
            for name, figure in (self.draw(report) if self.draw else {}).items():
                client.log_figure(run_id, figure, name)
        except Exception as error:
            if store.is_outage(error) or store.is_refusal(error):
                raise
            client.log_text(run_id, traceback.format_exc(), FIGURES_ERROR_FILE)

    def _copy_predictions(self, attempt: str, checkpoint: str) -> None:
        """Copies the last checkpoint's predictions to the run's artifacts."""
        if not checkpoint:
            return
        content = read_file(checkpoint, PREDICTIONS_FILE)
        if content is None:  # they stay in the checkpoint; the study goes on
            self._tag(attempt, {"bermo.predictions": f"in {checkpoint} alone"})
            return
        with tempfile.TemporaryDirectory(prefix="bermo-") as folder:
            copy = Path(folder) / PREDICTIONS_FILE
            copy.write_bytes(content)
            self._connect().log_artifact(self._run_of(attempt), str(copy))


def _to_tags(tags: Mapping[str, str]) -> list[Any]:
    """Tags as MLflow takes them, without empty ones."""
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in tags.items() if value]
