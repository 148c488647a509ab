"""``bermo-ray``: the UI on the right store, and the table."""

import os
import socket
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.command_line import commands
from bermo_ray.record import Report, Status
from bermo_ray.tracking import store
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import L0, Trial
from tests.support.records import write_study
from tests.support.servers import serve_ui


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one study of two trials, written as a study writes it."""
    folder = tmp_path_factory.mktemp("runs")
    trials = []
    for number, metric in enumerate((0.9, 0.8)):
        figures = {"metric": metric, "remaining": 0.5 + number / 4, "dropped_layers": [number]}
        figures["metric_selection"] = metric
        reports = [Report(step=step, epoch=float(step), **figures) for step in (1, 2)]
        reports.append(Report(step=3, status=Status.COMPLETED, **figures))
        trials.append((Trial(pruning=L0(), seed=number), reports))
    write_study(store_uri(folder), "mine", trials)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bermo-ray", *words])
    commands.main()


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
    assert results.load("mine", store_uri(runs))["seed"].to_pylist() == [0, 1]
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
        (["table", "mine", "--sql", "SELECT x FROM trials"], "error: --sql: Binder Error"),
        (["ui", "--runs", "nowhere"], "no studies in"),
        (["ui", "other", "--port", "0"], "no study 'other' in"),
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


def test_the_address_of_a_study_is_said(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Served(Exception):
        """The process would be the server from here on."""

    def replace_process(*_: object) -> None:
        raise Served

    monkeypatch.setattr(os, "execve", replace_process)
    parent = store.find_study(store_uri(runs), "mine")
    assert parent is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    page = f"http://127.0.0.1:{port}/#/experiments/1/runs"
    trials = f"mine: {page}?workflowType=machine_learning&viewStateShareKey=mine"
    about = f"what came out: {page}/{parent.info.run_id}?workflowType=machine_learning"
    for words, lines in ((["mine"], [trials, about]), ([], [trials])):
        with pytest.raises(Served):
            call(monkeypatch, "ui", *words, "--runs", str(runs), "--port", port)
        assert capsys.readouterr().out.splitlines() == [*lines, "Ctrl-C stops it"]


@pytest.mark.slow
def test_the_ui_serves_the_store_on_loopback_only(runs: Path) -> None:
    import psutil

    with serve_ui(runs) as server:
        assert store.find_study(server.address, "mine") is not None
        listening = [
            c for c in psutil.net_connections("tcp") if c.laddr.port == server.port and not c.raddr
        ]
        assert {c.laddr.ip for c in listening} == {"127.0.0.1"}
