"""``bermo-ray ui``: on the right store, and open to others only if asked."""

import http.client
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.command_line import commands, ui_command
from bermo_ray.record import Report
from bermo_ray.tracking import store
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import Trial
from tests.support.records import write_study
from tests.support.servers import find_free_port, serve_ui


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one study."""
    folder = tmp_path_factory.mktemp("runs")
    write_study(store_uri(folder), "mine", [(Trial(), [Report(step=1, metric=0.5)])])
    return folder


class Served(Exception):
    """The process would be the server from here on."""


@pytest.fixture
def start_ui(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls ``bermo-ray ui`` up to where it becomes the server; gives that call and its
    environment."""

    def start(*words: str) -> tuple[list[str], dict[str, str]]:
        served: list[Any] = []

        def replace_process(_: str, call: list[str], environment: dict[str, str]) -> None:
            served.extend((call, environment))
            raise Served

        monkeypatch.setattr(os, "execve", replace_process)
        monkeypatch.setattr(sys, "argv", ["bermo-ray", "ui", "--runs", str(runs), *words])
        with pytest.raises(Served):
            commands.main()
        call, environment = served
        return call, environment

    return start


def fail(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bermo-ray", "ui", *words])
    with pytest.raises(SystemExit) as caught:
        commands.main()
    assert caught.value.code == 2


def test_a_port_that_is_taken_is_one_line(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        fail(monkeypatch, "--runs", str(runs), "--port", str(held.getsockname()[1]))
    assert "is taken on 127.0.0.1; give another" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_one_line(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    fail(monkeypatch, "--runs", str(runs), "--host", host)
    out, err = capsys.readouterr()
    assert err.startswith(f"error: --host: can't listen on {host}, port 5000: ")
    assert (len(err.splitlines()), out) == (1, "")


def test_the_address_of_a_study_is_said(
    runs: Path, start_ui: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = store.find_study(store_uri(runs), "mine")
    assert parent is not None
    port = str(find_free_port())
    page = f"http://127.0.0.1:{port}/#/experiments/1/runs"
    trials = f"mine: {page}?workflowType=machine_learning&viewStateShareKey=mine"
    about = f"what came out: {page}/{parent.info.run_id}?workflowType=machine_learning"
    for words, lines in ((["mine"], [trials, about]), ([], [trials])):
        start_ui(*words, "--port", port)
        assert capsys.readouterr().out.splitlines() == [*lines, "Ctrl-C stops it"]


@pytest.mark.parametrize("host", [None, "127.0.0.1", "localhost"])
def test_on_this_machine_only_it_is_as_mlflow_is(
    runs: Path, start_ui: Any, capsys: pytest.CaptureFixture[str], host: str | None
) -> None:
    port = str(find_free_port())
    call, environment = start_ui("--port", port, *([] if host is None else ["--host", host]))
    assert call[3:8] == ["server", "--host", host or "127.0.0.1", "--port", port]
    assert environment["MLFLOW_BACKEND_STORE_URI"] == store_uri(runs)
    assert "MLFLOW_SERVER_ALLOWED_HOSTS" not in environment
    assert capsys.readouterr().err == ""


def test_open_to_others_it_warns_and_answers_to_its_own_names_alone(
    start_ui: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ui_command, "find_names", lambda host: ["box", "fd00::2"])
    port = find_free_port()
    call, environment = start_ui("--port", str(port), "--host", "0.0.0.0")
    assert call[3:6] == ["server", "--host", "0.0.0.0"]
    assert environment["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",") == [
        "localhost", f"localhost:{port}", "127.0.0.1", f"127.0.0.1:{port}", "[::1]",
        f"[::1]:{port}", "box", f"box:{port}", "[fd00::2]", f"[fd00::2]:{port}",
    ]  # fmt: skip
    origins = f"http://box:{port},http://[fd00::2]:{port}"
    assert environment["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"] == origins
    out, err = capsys.readouterr()
    assert out.startswith(f"mine: http://box:{port}/#/experiments/1/runs")
    assert err == (
        f"warning: everyone who reaches 0.0.0.0, port {port}, can read and change the records: "
        "MLflow has no login\n"
    )


def test_settings_of_mlflows_own_are_left_alone(
    start_ui: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SERVER_ALLOWED_HOSTS", "runs.example.org")
    _, environment = start_ui("--port", str(find_free_port()), "--host", "0.0.0.0")
    assert environment["MLFLOW_SERVER_ALLOWED_HOSTS"] == "runs.example.org"


@pytest.mark.usefixtures("no_login")
def test_the_password_of_a_database_is_no_argument(
    start_ui: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "postgresql://me:secret@host/runs"
    monkeypatch.setattr(ui_command, "print_addresses", lambda *_: None)
    call, environment = start_ui("--port", str(find_free_port()), "--tracking-uri", address)
    assert environment["MLFLOW_BACKEND_STORE_URI"] == address
    assert "secret" not in "".join([*call, *capsys.readouterr()])


def test_a_machine_is_called_by_its_name_and_address() -> None:
    assert ui_command.find_names("box.example.org") == ["box.example.org"]
    assert ui_command.find_names("10.0.0.5") == ["10.0.0.5"]
    names = ui_command.find_names("0.0.0.0")
    assert names[0] == socket.gethostname().lower()
    assert names == ui_command.find_names("::")
    assert not {"0.0.0.0", "::"} & set(names)


def ask(port: int, method: str, host: str, origin: str | None = None) -> int:
    """The status of a request for experiments that names its host and the page it comes from."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Host": host, "Content-Type": "application/json"}
    if origin is not None:
        headers["Origin"] = origin
    body = b'{"max_results": 1}' if method == "POST" else None
    path = "/ajax-api/2.0/mlflow/experiments/search?max_results=1"
    connection.request(method, path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def find_listening(port: int) -> set[str]:
    """The addresses on which something listens at that port."""
    import psutil

    connections = [c for c in psutil.net_connections("tcp") if c.laddr.port == port]
    return {c.laddr.ip for c in connections if not c.raddr}


@pytest.mark.slow
def test_the_ui_serves_the_store_on_loopback_only(runs: Path) -> None:
    with serve_ui(runs) as server:
        assert store.find_study(server.address, "mine") is not None
        assert find_listening(server.port) == {"127.0.0.1"}
        assert ask(server.port, "GET", f"box.example.org:{server.port}") == 403
    assert not any("warning" in line for line in server.printed)


@pytest.mark.slow
def test_the_ui_serves_others_if_asked(runs: Path) -> None:
    with serve_ui(runs, "--host", "0.0.0.0") as server:
        assert find_listening(server.port) == {"0.0.0.0"}
        assert server.printed[0].startswith("warning: everyone who reaches 0.0.0.0, port")
        for name in map(ui_command.in_address, [*ui_command.find_names("0.0.0.0"), "localhost"]):
            host = f"{name}:{server.port}"
            assert ask(server.port, "GET", host) == 200
            assert ask(server.port, "POST", host, f"http://{host}") == 200  # its own pages
            assert ask(server.port, "POST", host, "http://other.example.org") == 403
        assert ask(server.port, "GET", f"other.example.org:{server.port}") == 403
