from collections.abc import Callable
from pathlib import Path

import pytest

from bermo_ray import results
from bermo_ray.record import Report, Status
from bermo_ray.results.earlier import read_known_trials
from bermo_ray.results.table import to_table
from bermo_ray.search.trial_names import find_varied_fields
from bermo_ray.tracking import recorder as module
from bermo_ray.tracking import store
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import store_uri
from bermo_ray.tracking.study_run import open_study
from bermo_ray.trial import L0, Trial
from tests.support.records import RESOURCES, open_recorder


def find_run(uri: str, study: str) -> str:
    run = store.find_study(uri, study)
    assert run is not None
    return str(run.info.run_id)


def take_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes the store away; gives what brings it back."""
    connect = store.connect

    def away(_: str) -> None:
        raise OSError("no route")

    monkeypatch.setattr(store, "connect", away)
    return lambda: monkeypatch.setattr(store, "connect", connect)


def test_a_store_that_is_away_for_a_while_holds_nobody_up_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = store_uri(tmp_path)
    open_recorder(uri, "away")
    recorder = Recorder(uri, "away", find_run(uri, "away"), RESOURCES)
    bring_back = take_away(monkeypatch)
    recorder.on_start("0", Trial(pruning=L0()))
    recorder.on_report("0", [Report(step=1, epoch=1.0, metric=0.5, remaining=0.5)], "")
    assert recorder.unsent == 2
    bring_back()
    recorder.on_report("0", [Report(step=2, epoch=2.0, metric=0.6, remaining=0.5)], "")
    recorder.wait()
    assert recorder.unsent == 0
    (row,) = results.load("away", uri).to_pylist()
    assert row["metric"] == 0.6
    history = store.connect(uri).get_metric_history(row["run_id"], "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.5), (2, 0.6)]


def test_what_a_store_never_got_is_in_the_journal_and_sent_later_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = store_uri(tmp_path)
    run_id = open_study(uri, "l0_frontier", "gone", {}, "{}")
    folder = tmp_path / "gone"
    folder.mkdir()
    bring_back = take_away(monkeypatch)
    recorder = Recorder(uri, "gone", run_id, RESOURCES, None, folder=folder)
    recorder.on_start("0", Trial())
    recorder.on_report("0", [Report(step=1, epoch=1.0, metric=0.5)], "")
    done = Report(step=2, epoch=2.0, metric=0.6, status=Status.COMPLETED)
    recorder.on_report("0", [done], "/nowhere")
    recorder.on_start("1", Trial(seed=1))
    recorder.on_close()
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.0)
    recorder.close(Status.COMPLETED)
    assert recorder.unsent == 6
    local = to_table(recorder.read_runs()).to_pylist()
    assert [(r["status"], r["metric"], r["seed"]) for r in local] == [
        ("completed", 0.6, 0),
        ("interrupted", None, 1),
    ]
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 30.0)
    bring_back()
    for _ in range(2):  # once as it is, and once as if nobody had noted that it was sent
        again = Recorder.reopen(uri, "gone", folder)
        again.wait()
        assert again.unsent == 0, again.outage
        again.stop()
        (folder / "records.sent").unlink()
    rows = results.load("gone", uri).to_pylist()
    clocks = {"run_id": None}
    assert [r | clocks for r in rows] == [r | clocks for r in local]
    history = store.connect(uri).get_metric_history(rows[0]["run_id"], "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.5), (2, 0.6)]
    assert store.find_study(uri, "gone").data.tags["bermo.status"] == "completed"  # type: ignore[union-attr]


def test_a_record_that_mlflow_refuses_holds_up_no_other(tmp_path: Path) -> None:
    uri = store_uri(tmp_path)
    recorder = open_recorder(uri, "s")
    recorder.on_start("a", Trial())
    run_id = results.load("s", uri)["run_id"][0].as_py()
    store.connect(uri).delete_run(run_id)  # somebody tidied up in the UI
    recorder.on_report("a", [Report(step=1, metric=0.5)], "")
    recorder.on_start("b", Trial(seed=1))
    assert len(recorder.refused) == 1
    assert results.load("s", uri)["seed"].to_pylist() == [1]


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

    again = Recorder(uri, "s", find_run(uri, "s"))
    again.on_start("a", Trial())
    # The worker is at step 2: the driver never heard of that report.
    resumed = Report(step=2, epoch=2.0, metric=0.2, resumed_at=2)
    again.on_report("a", [*reports[:2], resumed], "/checkpoint")
    again.on_report("a", [Report(step=3, status=Status.COMPLETED, metric=0.3)], "/checkpoint")
    again.on_close()
    again.wait()
    a, b = results.load("s", uri).to_pylist()
    assert (a["status"], a["metric"], a["resumed_at"]) == ("completed", 0.3, 2)
    assert b["status"] == "interrupted"
    history = store.connect(uri).get_metric_history(a["run_id"], "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_a_run_is_named_by_what_varies_and_by_how_it_ended(tmp_path: Path) -> None:
    uri = store_uri(tmp_path)
    pruned = Trial(pruning=L0(multiplier=10.0)).replace(fusion="bermo")
    trials = {"a": pruned, "b": Trial(), "c": pruned.replace(pruning={"multiplier": 90.0})}
    recorder = open_recorder(uri, "named", varied=find_varied_fields(trials.values()))
    for attempt, trial in trials.items():
        recorder.on_start(attempt, trial)
    client = store.connect(uri)
    runs = store.trial_runs(client, find_run(uri, "named"))
    assert [run.info.run_name for run in runs] == ["bermo λ=10", "last dense", "bermo λ=90"]
    done = Report(step=1, status=Status.COMPLETED, metric=0.93, remaining=0.344)
    recorder.on_report("a", [done], "")
    recorder.on_report("b", [Report(step=1, status=Status.STOPPED, reason="hopeless")], "")
    recorder.on_report("c", [Report(step=1, status=Status.DIVERGED, reason="loss is nan")], "")
    recorder.on_close()
    runs = store.trial_runs(client, find_run(uri, "named"))
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
    # What diverged has ended: a later study does not run it again.
    known = {k.trial.id: k.report.status for k in read_known_trials(uri)}
    assert known == {pruned.id: Status.COMPLETED, trials["c"].id: Status.DIVERGED}
