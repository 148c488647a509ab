"""MLflow goes away while a study runs, for real: nobody waits, nothing is lost or twice."""

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results
from bermo_ray.command_line.commands import main
from bermo_ray.record import Report, Status
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study
from bermo_ray.tracking import recorder as module
from bermo_ray.tracking import store
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import Store, store_uri
from bermo_ray.tracking.study_run import open_study
from bermo_ray.trial import Trial
from tests.support.formula_backend import FormulaBackend
from tests.support.runs import small_trial
from tests.test_study import KnownTrials, without_clocks

pytestmark = pytest.mark.slow


class Server:
    """An MLflow server on this machine that comes and goes, with its records in a folder."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder, self.address = folder, f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        call = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        call += ["--port", str(self.port), "--workers", "1", "--backend-store-uri"]
        call += [f"sqlite:///{self.folder}/server.db", "--artifacts-destination"]
        call += [(self.folder / "artifacts").as_uri()]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                call, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.address}/health", timeout=2).close()
                return
            time.sleep(0.2)
        raise AssertionError((self.folder / "server.log").read_text())

    def stop(self) -> None:
        """Kills it; what it has stays."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


class Events(KnownTrials):
    """Does something at a certain report, and measures how long the recorder holds the driver."""

    def __init__(self, at_report: int, action: Any) -> None:
        super().__init__([])
        self.at_report, self.action, self.heard = at_report, action, 0

    def on_report(self, attempt: str, reports: Any, checkpoint: str) -> None:
        self.heard += 1
        if self.heard == self.at_report:
            self.action()


def measure_holds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that each record holds the driver, as they come in."""
    holds: list[float] = []
    record = Recorder._record

    def timed(self: Recorder, event: Any) -> None:
        started = time.monotonic()
        record(self, event)
        holds.append(time.monotonic() - started)

    monkeypatch.setattr(Recorder, "_record", timed)
    return holds


def make_study(tiny: str, runs: Path, uri: str | None) -> Study:
    trials = [small_trial(tiny, seed=seed) for seed in range(3)]
    return Study("s", Grid(trials), store=Store(runs, uri), backend="process")


def read_histories(uri: str) -> dict[int, list[tuple[int, float]]]:
    """The points of each trial's metric by seed, in the order in which they were written."""
    client, histories = store.connect(uri), {}
    for row in results.load("s", uri).to_pylist():
        history = client.get_metric_history(row["run_id"], "metric")
        histories[row["seed"]] = [(m.step, m.value) for m in history]
    return histories


def test_it_comes_back_and_has_everything_once_in_order(
    tiny: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make_study(tiny, tmp_path / "expected", None)
    table = without_clocks(expected.run().table)
    study, holds = make_study(tiny, tmp_path / "runs", server.address), measure_holds(monkeypatch)
    gone, back = Events(2, server.stop), Events(10, server.start)
    study.listeners = [gone, back]
    ran = study.run().table
    assert study.unsent == 0
    assert gone.heard == 12
    assert max(holds) < 2.0, holds
    assert without_clocks(ran).equals(table)
    assert read_histories(server.address) == read_histories(expected.uri)
    assert all(len(points) == 4 for points in read_histories(server.address).values())
    run = store.find_study(server.address, "s")
    assert run is not None
    assert run.data.tags["bermo.status"] == "completed"


def test_it_stays_away_and_is_sent_the_rest_later(
    tiny: str,
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = make_study(tiny, tmp_path / "expected", None)
    table = expected.run().table
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 3.0)
    study, holds = make_study(tiny, tmp_path / "runs", server.address), measure_holds(monkeypatch)
    study.listeners = [Events(2, server.stop)]
    ran = study.run().table
    assert without_clocks(ran).equals(without_clocks(table))
    assert study.unsent > 0
    assert max(holds) < 2.0, holds
    files = study.publish({"trials": ran})  # the study ends with its tables
    assert [file.name for file in files] == ["trials.parquet"]

    def sync() -> tuple[int, str]:
        words = ["sync", "s", "--runs", str(tmp_path / "runs"), "--tracking-uri", server.address]
        monkeypatch.setattr(sys, "argv", ["bermo-ray", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    code, line = sync()
    assert code == 2
    assert line.startswith(f"error: --tracking-uri: no MLflow server answers at {server.address}")
    server.start()
    code, line = sync()
    assert (code, line.split()[-2:]) == (0, ["records", "sent"])
    assert without_clocks(results.load("s", server.address)).equals(without_clocks(table))
    assert read_histories(server.address) == read_histories(expected.uri)
    names = {a.path for a in store.connect(server.address).list_artifacts(_run_id(server.address))}
    assert {"trials.parquet", "report.html"} <= names
    assert (tmp_path / "runs" / "s" / "report.html").is_file()
    assert sync() == (0, "s: MLflow has all of its records\n")


def _run_id(uri: str) -> str:
    run = store.find_study(uri, "s")
    assert run is not None
    return str(run.info.run_id)


def test_down_at_the_start_it_is_one_line(tiny: str, tmp_path: Path, server: Server) -> None:
    from bermo_ray.errors import UserError

    server.stop()
    with pytest.raises(UserError) as caught:
        make_study(tiny, tmp_path / "runs", server.address).run()
    (line,) = caught.value.problems
    assert line.startswith(f"tracking_uri: no MLflow server answers at {server.address}")
    assert not (tmp_path / "runs").exists()


BARRIER_SECONDS = 120.0


def _write_study(uri: str, name: str, trials: int, start: Any, printed: Path) -> None:
    with printed.open("w") as stream:  # whatever it prints, libraries' own words too
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    try:
        run_id = open_study(uri, "k", name, {}, "{}")
        recorder = Recorder(uri, name, run_id)
    except BaseException:
        start.abort()  # the others need not wait for it
        raise
    start.wait(BARRIER_SECONDS)
    for number in range(trials):
        recorder.on_start(str(number), Trial(seed=number))
        for step in (1, 2, 3):
            recorder.on_report(str(number), [Report(step=step, metric=step / 10)], "")
        done = Report(step=4, metric=0.4, status=Status.COMPLETED)
        recorder.on_report(str(number), [done], "")
    recorder.close(Status.COMPLETED)
    assert recorder.unsent == 0, recorder.outage
    assert recorder.refused == [], recorder.refused


def test_eight_writers_on_one_sqlite_store(tmp_path: Path) -> None:
    uri = store_uri(tmp_path)
    store.connect(uri)  # made once
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(8)
    names = [f"w{number}" for number in range(8)]
    files = [tmp_path / f"{name}.txt" for name in names]
    writers = [
        context.Process(target=_write_study, args=(uri, name, 3, start, file))
        for name, file in zip(names, files, strict=True)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(240)
        writer.kill()  # one that hangs fails the test, and is not left behind
        writer.join()
    printed = "".join(file.read_text() for file in files)
    assert [writer.exitcode for writer in writers] == [0] * 8, printed
    assert "database is locked" not in printed
    client = store.connect(uri)
    for name in names:
        rows = results.load(name, uri).to_pylist()
        assert [(row["seed"], row["metric"]) for row in rows] == [(0, 0.4), (1, 0.4), (2, 0.4)]
        for row in rows:
            history = client.get_metric_history(row["run_id"], "metric")
            assert [m.step for m in history] == [1, 2, 3, 4]


def test_a_driver_that_is_killed_meanwhile_loses_nothing(tiny: str, tmp_path: Path) -> None:
    """What it recorded is in the journal; whoever resumes the study sends it."""
    study = make_study(tiny, tmp_path / "runs", None)
    study.backend = FormulaBackend()
    study.run()
    folder = tmp_path / "runs" / "s"
    lines = (folder / "records.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert int((folder / "records.sent").read_text()) == len(events)
    other = f"sqlite:///{tmp_path}/other.db"  # a store that has heard of nothing yet
    run_id = open_study(other, "study", "s", {}, "{}")
    events[0]["study"]["run"] = run_id
    (folder / "records.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "records.sent").write_text("0")
    recorder = Recorder.reopen(other, "s", folder)
    recorder.wait()
    sent, before = results.load("s", other), results.load("s", study.uri)
    assert without_clocks(sent).equals(without_clocks(before))
