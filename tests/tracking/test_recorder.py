from pathlib import Path

import pytest

from bermo_ray import results
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.results.earlier import read_known_trials
from bermo_ray.search.trial_names import find_varied_fields
from bermo_ray.tracking import recorder as module
from bermo_ray.tracking import store
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import L0, Trial
from tests.support.records import open_recorder


def test_a_store_that_is_away_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = store_uri(tmp_path)
    recorder = open_recorder(uri, "away")
    connect = store.connect

    def away(_: str) -> None:
        raise OSError("no route")

    monkeypatch.setattr(store, "connect", away)
    recorder.on_start("0", Trial(pruning=L0()))
    recorder.on_report("0", [Report(step=1, epoch=1.0, metric=0.5, remaining=0.5)], "")
    monkeypatch.setattr(store, "connect", connect)
    recorder.on_report("0", [Report(step=2, epoch=2.0, metric=0.6, remaining=0.5)], "")
    (row,) = results.load("away", uri).to_pylist()
    assert row["metric"] == 0.6
    history = connect(uri).get_metric_history(row["run_id"], "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.5), (2, 0.6)]


def test_a_store_that_stays_away_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = open_recorder(store_uri(tmp_path), "gone")

    def away(_: str) -> None:
        raise OSError("no route")

    monkeypatch.setattr(store, "connect", away)
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.0)
    recorder.on_start("0", Trial())
    with pytest.raises(UserError, match="^2 records could not be written to .*resume the study"):
        recorder.on_close()


def test_after_a_resume_nothing_is_written_twice_and_what_was_missed_is_written(
    tmp_path: Path,
) -> None:
    uri = store_uri(tmp_path)
    first = open_recorder(uri, "s")
    first.on_start("a", Trial())
    first.on_start("b", Trial(seed=1))
    reports = [Report(step=step, epoch=float(step), metric=step / 10) for step in (1, 2, 3)]
    first.on_report("a", reports[:1], "/checkpoint")
    first.on_close()
    rows = results.load("s", uri).to_pylist()
    assert [row["status"] for row in rows] == ["interrupted"] * 2

    again = Recorder(uri, "s", first.study_run)
    again.on_start("a", Trial())
    # The worker is at step 2: the driver never heard of that report.
    resumed = Report(step=2, epoch=2.0, metric=0.2, resumed_at=2)
    again.on_report("a", [*reports[:2], resumed], "/checkpoint")
    again.on_report("a", [Report(step=3, status=Status.COMPLETED, metric=0.3)], "/checkpoint")
    again.on_close()
    a, b = results.load("s", uri).to_pylist()
    assert (a["status"], a["metric"], a["resumed_at"]) == ("completed", 0.3, 2)
    assert b["status"] == "interrupted"
    history = store.connect(uri).get_metric_history(a["run_id"], "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    store.delete_unfinished_trials(uri, first.study_run)
    assert results.load("s", uri)["trial_id"].to_pylist() == [a["trial_id"]]


def test_a_run_is_named_by_what_varies_and_by_how_it_ended(tmp_path: Path) -> None:
    uri = store_uri(tmp_path)
    pruned = Trial(pruning=L0(multiplier=10.0)).replace(fusion="bermo")
    trials = {"a": pruned, "b": Trial(), "c": pruned.replace(pruning={"multiplier": 90.0})}
    recorder = open_recorder(uri, "named", varied=find_varied_fields(trials.values()))
    for attempt, trial in trials.items():
        recorder.on_start(attempt, trial)
    client = store.connect(uri)
    runs = store.trial_runs(client, recorder.study_run)
    assert [run.info.run_name for run in runs] == ["bermo λ=10", "last dense", "bermo λ=90"]
    done = Report(step=1, status=Status.COMPLETED, metric=0.93, remaining=0.344)
    recorder.on_report("a", [done], "")
    recorder.on_report("b", [Report(step=1, status=Status.STOPPED, reason="hopeless")], "")
    recorder.on_report("c", [Report(step=1, status=Status.DIVERGED, reason="loss is nan")], "")
    recorder.on_close()
    runs = store.trial_runs(client, recorder.study_run)
    assert [(run.info.run_name, run.info.status) for run in runs] == [
        ("bermo λ=10 34 % 0.930", "FINISHED"),
        ("last dense stopped", "KILLED"),
        ("bermo λ=90 diverged", "FAILED"),
    ]
    assert [run.data.tags.get("mlflow.note.content") for run in runs] == [
        None,
        "**Stopped**: hopeless",
        "**Diverged**: loss is nan",
    ]
    assert [run.data.params for run in runs] == [
        {"fusion.name": "bermo", "pruning.method": "l0", "pruning.multiplier": "10.0"},
        {"fusion.name": "last", "pruning.method": "dense"},
        {"fusion.name": "bermo", "pruning.method": "l0", "pruning.multiplier": "90.0"},
    ]
    # Our own reading knows better than MLflow's status, and all of a Trial.
    rows = results.load("named", uri).to_pylist()
    assert [row["status"] for row in rows] == ["completed", "stopped", "diverged"]
    assert [row["batch_size"] for row in rows] == [32, 32, 32]
    assert [Trial.from_json(row["trial_json"]) for row in rows] == list(trials.values())
    # What diverged has ended: neither a resumed study nor a later one runs it again.
    store.delete_unfinished_trials(uri, recorder.study_run)
    assert results.load("named", uri).num_rows == 3
    known = {k.trial.id: k.report.status for k in read_known_trials(uri)}
    assert known == {pruned.id: Status.COMPLETED, trials["c"].id: Status.DIVERGED}
