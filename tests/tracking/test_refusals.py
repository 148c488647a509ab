"""What MLflow refuses is noted and told, and ends nothing; what it can't take just now is kept."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc
from boto3.exceptions import S3UploadFailedError  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    ClientError,
    EndpointConnectionError,
)
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes
from rich.console import Console

from bermo_ray import results
from bermo_ray.command_line.options import OneTaskOptions
from bermo_ray.command_line.session import Session
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.results.study_records import sync_study
from bermo_ray.results.table import to_table
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study
from bermo_ray.tracking import store
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import Store, store_uri
from bermo_ray.tracking.study_run import open_study
from bermo_ray.tracking.trial_writer import FIGURES_ERROR_FILE
from bermo_ray.trial import Trial
from tests.support.formula_backend import FormulaBackend, report_of
from tests.support.records import open_recorder

FIRST, SECOND = Trial(), Trial(seed=1)


def complain(kind: Any) -> str:
    return str(kind("INSERT", {}, Exception("why")))


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (MlflowException("gone", codes.RESOURCE_DOES_NOT_EXIST), True),
        (MlflowException("deleted", codes.INVALID_PARAMETER_VALUE), True),
        (MlflowException(complain(sqlalchemy.exc.DataError), codes.BAD_REQUEST), True),
        (store.NoStudyError("no study"), True),
        (MlflowException(complain(sqlalchemy.exc.DatabaseError), codes.BAD_REQUEST), False),
        (MlflowException(complain(sqlalchemy.exc.IntegrityError), codes.BAD_REQUEST), False),
        (MlflowException("proxy", codes.BAD_REQUEST), False),
        (MlflowException("login ran out", codes.PERMISSION_DENIED), False),
        (MlflowException("locked", codes.TEMPORARILY_UNAVAILABLE), False),
        (EndpointConnectionError(endpoint_url="http://s3"), False),
        (ClientError({"Error": {"Code": "SlowDown"}}, "PutObject"), False),
        (S3UploadFailedError("reset"), False),
        (ConnectionResetError(), False),
        (UserError("no server answers"), False),
    ],
)
def test_refusals_and_outages(error: Exception, refused: bool) -> None:
    assert (store.is_refusal(error), store.is_outage(error)) == (refused, not refused)


def test_a_bug_is_neither() -> None:
    assert not store.is_refusal(KeyError("a"))
    assert not store.is_outage(KeyError("a"))


def delete_experiment(uri: str, kind: str) -> Callable[[], None]:
    """Somebody tidies up in the UI; gives what brings it back."""
    client = store.connect(uri)
    experiment = client.get_experiment_by_name(kind)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    return lambda: client.restore_experiment(experiment.experiment_id)


def record(recorder: Recorder, attempt: str, trial: Trial) -> None:
    recorder.on_start(attempt, trial)
    recorder.on_report(attempt, [Report(step=1, metric=0.1)], "")
    recorder.on_report(attempt, [report_of(trial)], "")


def test_a_refused_start_refuses_its_trial_alone_and_is_known_to_the_next_process(
    tmp_path: Path,
) -> None:
    uri, folder = store_uri(tmp_path), tmp_path / "s"
    run_id = open_study(uri, "k", "s", {}, "{}")
    folder.mkdir()
    recorder = Recorder(uri, "s", run_id, folder=folder)
    bring_back = delete_experiment(uri, "k")
    record(recorder, "0", FIRST)
    recorder.wait()
    (line,) = recorder.refused
    assert line.startswith(f"trial {FIRST.id[:6]}: The experiment ")
    assert "must be in the 'active' state" in line
    bring_back()
    record(recorder, "1", SECOND)
    recorder.close(Status.COMPLETED)
    assert (recorder.unsent, recorder.refused) == (0, [line])
    assert results.load("s", uri)["seed"].to_pylist() == [1]
    again = Recorder.reopen(uri, "s", folder)
    again.stop()
    assert again.refused == [line]
    rows = to_table(again.read_runs()).to_pylist()
    assert [(row["seed"], row["status"], row["metric"]) for row in rows] == [
        (0, "completed", report_of(FIRST).metric),
        (1, "completed", report_of(SECOND).metric),
    ]


class Deleting:
    """Deletes the experiment as soon as a trial has started."""

    def __init__(self, uri: str) -> None:
        self.uri, self.is_done = uri, False

    def on_start(self, attempt: str, trial: Trial) -> None:
        if not self.is_done:
            delete_experiment(self.uri, "study")
        self.is_done = True

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def test_a_study_goes_on_to_its_tables_and_says_in_a_line_what_was_refused(tmp_path: Path) -> None:
    trials = [Trial(seed=seed) for seed in range(3)]
    study = Study("s", Grid(trials), store=Store(tmp_path))
    study.backend = FormulaBackend()
    study.listeners = [Deleting(study.uri)]
    table = study.run().table
    assert table["metric"].to_pylist() == [report_of(trial).metric for trial in trials]
    assert study.unsent == 0
    console = Console(file=io.StringIO(), width=100)
    session = Session(OneTaskOptions(), study, console)
    session.publish({"trials": table})
    assert (tmp_path / "s" / "trials.parquet").is_file()
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    (told,) = [line for line in printed.splitlines() if "refused" in line]
    where = f"which are in {tmp_path}/s/ alone: trial {trials[0].id[:6]}: The "
    assert told.startswith(f"MLflow at {study.uri} refused records, {where}")
    assert told.endswith(" more")
    assert "is away" not in printed
    assert sync_study("s", study.uri, tmp_path / "s")[1] == study.refused


def test_a_figure_that_can_not_be_drawn_is_not_worth_the_study(tmp_path: Path) -> None:
    uri = store_uri(tmp_path)

    def draw(report: Report) -> dict[str, Any]:
        raise ZeroDivisionError("no such axis")

    recorder = Recorder(uri, "s", open_study(uri, "k", "s", {}, "{}"), draw=draw)
    record(recorder, "0", FIRST)
    recorder.close(Status.COMPLETED)
    assert (recorder.unsent, recorder.refused) == (0, [])
    (row,) = results.load("s", uri).to_pylist()
    client = store.connect(uri)
    assert client.get_run(row["run_id"]).info.status == "FINISHED"
    file = client.download_artifacts(row["run_id"], FIGURES_ERROR_FILE, str(tmp_path))
    assert Path(file).read_text().endswith("ZeroDivisionError: no such axis\n")


def test_an_unreachable_artifact_store_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    recorder = open_recorder(store_uri(tmp_path), "s")
    log_text = MlflowClient.log_text
    failures: list[str] = []

    def fail_once(self: Any, run_id: str, text: str, name: str) -> None:
        if not failures:
            failures.append(name)
            raise EndpointConnectionError(endpoint_url="http://s3")
        log_text(self, run_id, text, name)

    monkeypatch.setattr(MlflowClient, "log_text", fail_once)
    recorder.on_start("0", FIRST)
    assert failures == ["trial.json"]
    assert recorder.outage.startswith("Could not connect to the endpoint URL")
    (row,) = results.load("s", store_uri(tmp_path)).to_pylist()
    assert json.loads(row["trial_json"]) == json.loads(FIRST.to_json())
