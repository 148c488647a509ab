"""Servers for tests: a running ``bermo-ray ui``, a plain MLflow server, and one behind a login."""

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DEADLINE_SECONDS = 120
_COMMAND = [sys.executable, "-c", "from bermo_ray.command_line.commands import main; main()"]


@dataclass(frozen=True)
class Server:
    """Its address, its port, and the lines that the command printed before it served."""

    address: str
    port: int
    printed: list[str]


def find_free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve_mlflow(folder: Path) -> Iterator[str]:
    """A plain ``mlflow server`` with its database, artifacts and log in a new folder; gives its
    host and port."""
    folder.mkdir()
    port, log = find_free_port(), folder / "server.log"
    call = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    call += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    call += ["--artifacts-destination", str(folder / "artifacts")]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("w") as stream:
        process = subprocess.Popen(
            call, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_for_health(f"http://127.0.0.1:{port}", process, log)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


@contextmanager
def serve_behind_login(user: str, password: str) -> Iterator[tuple[str, list[str]]]:
    """As much of an MLflow server as connecting takes, for one user; gives its host and port, and
    the list of what was asked for without the login."""
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    refused: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers["Authorization"] == expected
            if not is_known:
                refused.append(self.path)
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", refused
        server.shutdown()


@contextmanager
def serve_ui(runs: Path, *words: str) -> Iterator[Server]:
    """``bermo-ray ui`` on a free port, ready to be asked, until the block ends."""
    port = find_free_port()
    log = runs / "ui.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*_COMMAND, "ui", *words, "--runs", str(runs), "--port", str(port)],
            stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        _wait_for_health(f"http://127.0.0.1:{port}", process, log)
        lines = log.read_text().splitlines()
        printed = lines[: lines.index("Ctrl-C stops it") + 1]
        yield Server(f"http://127.0.0.1:{port}", port, printed)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


def _wait_for_health(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=2).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
