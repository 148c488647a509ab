"""``bermo-ray``: the UI on the right store, and the table."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bermo_ray import cli, results, tracking
from bermo_ray.trial import Pruning, Trial


class FakeTune:
    """What the Tracker reads of Tune's trial."""

    def __init__(self, trial_id: str, trial: Trial) -> None:
        self.trial_id = trial_id
        resources = {"workers": 1, "gpus": False, "cpus_per_worker": 1}
        self.config = {"trial": trial.to_json(), "resources": resources, "storage": "/x"}
        self.last_result: dict[str, object] = {}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one study of two trials, written as a study writes it."""
    folder = tmp_path_factory.mktemp("runs")
    uri = tracking.store_uri(folder)
    parent = tracking.open_study(uri, "l0_frontier", "mine", {"task": "tense"}, "{}")
    tracker = tracking.Tracker(uri, "mine", parent)
    for number, metric in enumerate((0.9, 0.8)):
        tune = FakeTune(str(number), Trial(pruning=Pruning(), seed=number))
        tracker.on_trial_start(0, [], tune)
        for step in (1, 2):
            report = {
                "step": step,
                "epoch": step / 1,
                "metric": metric,
                "remaining": 0.5 + number / 4,
            }
            tracker.on_trial_result(0, [], tune, report | {"final": False})
        tracker.on_trial_result(
            0, [], tune, report | {"step": 3, "final": True, "status": "completed"}
        )
    tracker.on_experiment_end([])
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bermo-ray", *words])
    cli.main()


def test_table_prints_and_writes(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "table", "mine", "--runs", str(runs))
    out = capsys.readouterr().out
    assert "50.0%  0.9000" in out
    assert out.count("completed") == 2
    call(
        monkeypatch,
        "table",
        "mine",
        "--runs",
        str(runs),
        "--frontier",
        "--out",
        str(tmp_path / "f.parquet"),
    )
    assert pq.read_table(tmp_path / "f.parquet")["metric"].to_pylist() == [0.9]
    call(monkeypatch, "table", "mine", "--runs", str(runs), "--out", str(tmp_path / "t.csv"))
    assert pyarrow.csv.read_csv(tmp_path / "t.csv").num_rows == 2
    assert results.load("mine", tracking.store_uri(runs))["seed"].to_pylist() == [0, 1]
    best = "SELECT seed, metric FROM trials ORDER BY metric DESC LIMIT 1"
    call(monkeypatch, "table", "mine", "--runs", str(runs), "--sql", best)
    assert capsys.readouterr().out.split() == ["seed", "metric", "0", "0.9"]
    file = str(tmp_path / "best.parquet")
    call(monkeypatch, "table", "mine", "--runs", str(runs), "--sql", best, "--out", file)
    assert pq.read_table(file).to_pylist() == [{"seed": 0, "metric": 0.9}]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["table", "other"], "no study 'other' in"),
        (["table", "mine", "--out", "x.txt"], "expected a name ending in .parquet or .csv"),
        (["table", "mine", "--out", "no/such/folder/x.csv"], "--out: "),
        (
            ["table", "mine", "--sql", "SELECT list(seed) FROM trials", "--out", "x.csv"],
            "--out: ",
        ),
        (["table", "mine", "--sql", "SELECT x FROM trials"], "error: sql: Binder Error"),
        (["ui", "--runs", "nowhere"], "no studies in"),
    ],
)
def test_mistakes_are_one_line(
    runs: Path,
    words: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    extra = [] if "--runs" in words else ["--runs", str(runs)]
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, *words, *extra)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert line in err
    assert len(err.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_one_line(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(SystemExit):
            call(monkeypatch, "ui", "--runs", str(runs), "--port", str(held.getsockname()[1]))
    assert "is taken on 127.0.0.1; give another" in capsys.readouterr().err


def test_a_store_that_is_away_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tracking.store_uri(tmp_path)
    parent = tracking.open_study(uri, "k", "away", {}, "{}")
    tracker = tracking.Tracker(uri, "away", parent)
    tune = FakeTune("0", Trial(pruning=Pruning()))
    real = tracking.client

    def away(_: str) -> None:
        raise OSError("no route")

    monkeypatch.setattr(tracking, "client", away)
    tracker.on_trial_start(0, [], tune)
    report = {"step": 1, "epoch": 1.0, "metric": 0.5, "remaining": 0.5, "final": False}
    tracker.on_trial_result(0, [], tune, report)
    monkeypatch.setattr(tracking, "client", real)
    tracker.on_trial_result(0, [], tune, report | {"step": 2, "metric": 0.6})
    (row,) = results.load("away", uri).to_pylist()
    assert row["metric"] == 0.6
    history = real(uri).get_metric_history(row["run_id"], "metric")
    assert [(m.step, m.value) for m in history] == [(1, 0.5), (2, 0.6)]


@pytest.mark.slow
def test_the_ui_serves_the_store_on_loopback_only(runs: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from bermo_ray.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "ui", "--runs", str(runs), "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{base}/health", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, process.stdout and process.stdout.read()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        found = tracking.find_study(base, "mine")
        assert found is not None
        import psutil

        ports = [c for c in psutil.net_connections("tcp") if c.laddr.port == port and not c.raddr]
        assert {c.laddr.ip for c in ports} == {"127.0.0.1"}
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
