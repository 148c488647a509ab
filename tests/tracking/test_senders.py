"""One sender at a time, which writes each record once and looks up no more than it must."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.results.study_records import sync_study
from bermo_ray.results.table import to_table
from bermo_ray.tracking import models, store
from bermo_ray.tracking import recorder as module
from bermo_ray.tracking.journal import Journal
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import STUDY_FILE, store_uri
from bermo_ray.tracking.study_run import open_study
from bermo_ray.tracking.trial_writer import TrialWriter
from bermo_ray.trial import Trial
from tests.tracking.test_recorder import take_away

DONE = Report(step=2, status=Status.COMPLETED, metric=0.5)


def open_in_folder(runs: Path, name: str = "s") -> Recorder:
    """A recorder of a new study that has a journal."""
    run_id = open_study(store_uri(runs), "k", name, {}, "{}")
    (runs / name).mkdir()
    (runs / name / STUDY_FILE).write_text('{"question": "", "settings": {}}')
    return Recorder(store_uri(runs), name, run_id, folder=runs / name)


def test_a_running_study_is_not_sent_by_another_process_too(tmp_path: Path) -> None:
    recorder = open_in_folder(tmp_path)
    program = Path(sys.executable).with_name("bermo-ray")
    command = [str(program), "sync", "s", "--runs", str(tmp_path)]
    sync = subprocess.run(command, capture_output=True, text=True, check=False)
    assert sync.returncode == 2, sync.stderr
    assert sync.stderr.splitlines() == [
        "error: another process runs study 's' or sends its records; wait for its end, then try "
        "again"
    ]
    recorder.on_start("0", Trial())
    recorder.close(Status.COMPLETED)
    again = Recorder.reopen(store_uri(tmp_path), "s", tmp_path / "s")
    again.stop()


def test_a_recorder_that_can_not_close_ends_its_thread_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = open_in_folder(tmp_path)
    recorder.on_start("0", Trial())
    recorder.wait()

    def fill_up(self: Journal, event: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Journal, "append", fill_up)
        with pytest.raises(OSError, match="No space left"):
            recorder.close(Status.FAILED)
    assert not recorder._thread.is_alive()
    again = Recorder.reopen(store_uri(tmp_path), "s", tmp_path / "s")
    again.close(Status.INTERRUPTED)
    (row,) = results.load("s", store_uri(tmp_path)).to_pylist()
    assert row["status"] == "interrupted"


def test_syncing_leaves_no_sender_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = store_uri(tmp_path)
    recorder = open_in_folder(tmp_path)
    recorder.close(Status.COMPLETED)
    for _ in range(2):
        assert sync_study("s", uri, tmp_path / "s") == (0, [])
    (tmp_path / "s" / "records.sent").unlink()
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.0)

    def away(self: TrialWriter, event: Any) -> None:
        raise ConnectionResetError("by peer")

    with monkeypatch.context() as patch:
        patch.setattr(TrialWriter, "send", away)
        with pytest.raises(UserError, match="2 of 2 records could not be written"):
            sync_study("s", uri, tmp_path / "s")
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 30.0)
    assert sync_study("s", uri, tmp_path / "s") == (2, [])


def test_a_journal_that_was_moved_names_the_checkpoints_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With MLflow away the table is made of it."""
    before, between, after = (tmp_path / name for name in ("a b", "c ü", "d"))
    before.mkdir()
    recorder = open_in_folder(before)
    take_away(monkeypatch)
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.0)
    recorder.on_start("0", Trial())
    recorder.on_report("0", [Report(step=1)], f"{before}/checkpoints/s/0")
    recorder.close(Status.INTERRUPTED)
    for number, (old, new) in enumerate(((before, between), (between, after)), 1):
        old.rename(new)
        recorder = Recorder.reopen(store_uri(new), "s", new / "s")
        recorder.on_start(str(number), Trial(seed=number))
        recorder.on_report(str(number), [Report(step=1)], f"{new}/checkpoints/s/{number}")
        recorder.close(Status.INTERRUPTED)
        paths = to_table(recorder.read_runs())["checkpoint"].to_pylist()
        assert paths == [f"{new}/checkpoints/s/{n}" for n in range(number + 1)]
        sent = [e["checkpoint"] for e in recorder._pending if "checkpoint" in e]
        assert sent == paths
    recorder = Recorder(store_uri(after), "s", "run", folder=after / "s")
    recorder.on_report("2", [Report(step=2)], "s3://bucket/s/2")
    recorder.on_report("1", [Report(step=2)], "/elsewhere/1")
    recorder.stop()
    paths = to_table(recorder.read_runs())["checkpoint"].to_pylist()
    assert paths == [f"{after}/checkpoints/s/0", "/elsewhere/1", "s3://bucket/s/2"]


class Counting:
    """A client that counts its calls."""

    def __init__(self, client: Any, calls: Counter[str]) -> None:
        self.client, self.calls = client, calls

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self.client, name)


def test_after_a_failure_only_the_trial_at_hand_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = store_uri(tmp_path)
    recorder = open_in_folder(tmp_path)
    for number in range(5):
        recorder.on_start(str(number), Trial(seed=number))
        recorder.on_report(str(number), [Report(step=1, metric=0.1)], "")
    recorder.close(Status.INTERRUPTED)
    calls: Counter[str] = Counter()
    connect = store.connect
    monkeypatch.setattr(store, "connect", lambda uri: Counting(connect(uri), calls))
    describe, failures = TrialWriter._describe_end, iter([True, True])

    def fail_twice(self: TrialWriter, attempt: str, report: Report) -> dict[str, str]:
        if next(failures, False):
            raise ConnectionResetError("by peer")
        return describe(self, attempt, report)

    monkeypatch.setattr(TrialWriter, "_describe_end", fail_twice)
    again = Recorder.reopen(uri, "s", tmp_path / "s")
    again.on_report("3", [Report(step=1, metric=0.1), Report(step=2, metric=0.2)], "")
    again.wait()
    again.stop()
    assert (again.unsent, again.outage) == (0, "by peer")
    assert calls["get_metric_history"] == 3  # of one trial of five, for each try
    assert calls["search_runs"] == 1  # the runs there are, once
    run_id = results.load("s", uri)["run_id"][3].as_py()
    history = connect(uri).get_metric_history(run_id, "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.1), (2, 0.2)]


def test_a_run_whose_making_was_not_heard_of_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    recorder = open_in_folder(tmp_path)
    create_run, made = MlflowClient.create_run, []

    def lose_answer(self: Any, *args: Any, **settings: Any) -> Any:
        made.append(create_run(self, *args, **settings))
        raise ConnectionResetError("by peer")

    monkeypatch.setattr(MlflowClient, "create_run", lose_answer)
    recorder.on_start("0", Trial())
    recorder.on_report("0", [DONE], "")
    recorder.close(Status.COMPLETED)
    assert recorder.unsent == 0
    assert results.load("s", store_uri(tmp_path))["run_id"].to_pylist() == [made[0].info.run_id]
    assert len(made) == 1


def test_a_model_that_its_run_does_not_name_yet_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is killed between the two leaves it so."""
    uri = store_uri(tmp_path)
    recorder = open_in_folder(tmp_path)
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.0)

    def cut_off(*args: Any) -> None:
        raise ConnectionResetError("by peer")

    with monkeypatch.context() as patch:
        patch.setattr(models, "finish_model", cut_off)
        recorder.on_start("0", Trial())
        recorder.on_report("0", [DONE], "/checkpoint")
        while not recorder.outage:
            recorder.wait()
        recorder.stop()
    again = Recorder.reopen(uri, "s", tmp_path / "s")
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 30.0)
    again.wait()
    again.stop()
    assert again.unsent == 0
    client = store.connect(uri)
    (row,) = results.load("s", uri).to_pylist()
    run = client.get_run(row["run_id"])
    (model,) = client.search_logged_models([run.info.experiment_id])
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    assert model.status == "READY"
