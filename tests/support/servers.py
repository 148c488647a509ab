"""A running ``bermo-ray ui``."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEADLINE_SECONDS = 120
_COMMAND = [sys.executable, "-c", "from bermo_ray.command_line.commands import main; main()"]


@dataclass(frozen=True)
class Server:
    """Its address, its port, and the lines that the command printed before it served."""

    address: str
    port: int
    printed: list[str]


@contextmanager
def serve_ui(runs: Path, *words: str) -> Iterator[Server]:
    """``bermo-ray ui`` on a free port, ready to be asked, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
