"""A Ray of our own listens on this machine's loopback alone."""

import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from bermo_ray.passwords import hide_password
from bermo_ray.ray_backend import cluster
from tests.support.studies import ENVIRONMENT, finish_study, small_study, start_study


@pytest.mark.parametrize(
    ("address", "running", "joins"),
    [
        (None, None, False),
        ("local", "10.0.0.5:6379", False),
        (None, "10.0.0.5:6379", True),
        ("10.0.0.5:6379", None, True),
        ("ray://10.0.0.5:10001", None, True),
    ],
)
def test_a_cluster_is_joined_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch, address: str | None, running: str | None, joins: bool
) -> None:
    from ray._private import ray_constants, services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: running)
    before = ray_constants.ENABLE_RAY_CLUSTER
    with cluster._listening_on_loopback():
        is_here = services.get_node_ip_address() == "127.0.0.1"
        assert is_here is not joins
    assert before is ray_constants.ENABLE_RAY_CLUSTER is True  # the next may be joined


def test_ray_keeps_no_password_of_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import utils

    line = "python study.py --tracking-uri postgresql://me:secret@host/runs --epochs 2"
    monkeypatch.setattr(utils, "get_entrypoint_name", lambda: line)
    with cluster._hiding_passwords():
        assert utils.get_entrypoint_name() == hide_password(line) != line
    assert utils.get_entrypoint_name() == line


@pytest.mark.ray
def test_the_command_that_ray_shows_has_no_password() -> None:
    code = (
        "from bermo_ray.ray_backend import cluster\n"
        "cluster.connect()\n"
        "from ray._private.state import state\n"
        "print(state.job_table()[0]['Entrypoint'])"
    )
    words = ["--tracking-uri", "postgresql://me:secret@host/runs", "--epochs", "2"]
    shown = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    expected = "--tracking-uri postgresql://me:***@host/runs --epochs 2"
    assert shown.stdout.strip().endswith(expected)
    assert "secret" not in shown.stdout + shown.stderr


def find_listening(pid: int) -> set[tuple[str, str, int]]:
    """Of a process and all that it started: name of the process, address and port."""
    try:
        root = psutil.Process(pid)
        names = {p.pid: p.info["name"] for p in psutil.process_iter(["name"])}
        pids = {pid, *(child.pid for child in root.children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()
    return {
        (names.get(c.pid, "?"), c.laddr.ip.removeprefix("::ffff:"), c.laddr.port)
        for c in psutil.net_connections("inet")
        if c.status == psutil.CONN_LISTEN and c.pid in pids
    }


@pytest.mark.ray
def test_every_port_of_a_study_is_on_loopback(tiny: str, tmp_path: Path) -> None:
    listening: set[tuple[str, str, int]] = set()
    options = (*small_study(tiny), "--workers", "2", "--fusions", "bermo", "--trials", "1")
    process = start_study(tmp_path, *options)
    while process.poll() is None:
        listening |= find_listening(process.pid)
        time.sleep(0.5)
    assert "a Ray of its own" in finish_study(process)
    names = {name for name, _, _ in listening}
    assert {"gcs_server", "raylet"} < names
    assert any(name.startswith("ray::") for name in names)  # workers too
    others_reach = {(n, ip, p) for n, ip, p in listening if not ip_address(ip).is_loopback}
    assert others_reach == set()
