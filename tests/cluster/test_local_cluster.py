"""cluster.local.yaml: brought up over SSH on this machine, used in both ways, and taken down."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from getpass import getuser
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from bermo_ray import results
from bermo_ray.record import Status
from tests.support import ssh_server
from tests.support.ssh_server import SSH_PACKAGES, SshServer, free_port
from tests.support.studies import ROOT, small_study
from tests.support.system_packages import install_programs

pytestmark = pytest.mark.ray

PORTS = ("6379", "8265", "5000")  # of Ray, its dashboard and MLflow in cluster.local.yaml
STOP_MLFLOW = "kill -- -$(cat ~/bermo_ray/runs/mlflow.pid)"  # as in docs/cluster.md
DEADLINE_SECONDS = 120


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: Ray puts sockets below it, whose paths may have 107 characters."""
    path = Path(tempfile.mkdtemp(prefix="bermo-", dir="/tmp"))
    for name in ("laptop", "head", "shared", "ssh"):
        (path / name).mkdir()
    yield path
    shutil.rmtree(path)
    # Ray keeps the sockets of SSH elsewhere, under the names of the user and of the cluster.
    user, cluster = (sha256(name.encode()).hexdigest()[:10] for name in (getuser(), path.name))
    shutil.rmtree(f"/tmp/ray_ssh_{user}/{cluster}", ignore_errors=True)


@pytest.fixture
def server(folder: Path) -> Iterator[SshServer]:
    """The head, as seen from outside: an SSH server."""
    install_programs(SSH_PACKAGES)
    variables = {"RAY_TMPDIR": str(folder / "head"), "HF_HUB_OFFLINE": "1"}
    server = SshServer(folder / "ssh", folder / "head", variables)
    try:
        server.start()
        yield server
        server.run(f"~/bermo_ray/.venv/bin/ray stop --force; {STOP_MLFLOW}")
    finally:
        server.stop()


class Laptop:
    """Where the commands are typed: a home and a `ray` of its own."""

    def __init__(self, folder: Path, server: SshServer) -> None:
        self.environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.environment |= {
            "HOME": str(folder / "laptop"),
            "TMPDIR": str(folder / "laptop"),
            "RAY_TMPDIR": str(folder / "laptop"),
            "RAY_AUTH_MODE": "token",
            "PATH": f"{server.programs}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}",
            "COLUMNS": "80",
        }

    def call(self, *words: str) -> str:
        """What `ray WORDS` prints; an error is one of the test."""
        done = subprocess.run(
            ["ray", *words], env=self.environment, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"ray {words[0]}: exit {done.returncode}\n{done.stdout}"
        return done.stdout

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """`ray WORDS` in the background."""
        return subprocess.Popen(
            ["ray", *words], env=self.environment, cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def here(config: Any, values: dict[str, str]) -> Any:
    """The configuration with texts replaced wherever they stand."""
    text = json.dumps(config)
    for old, new in values.items():
        assert old in text, f"cluster.local.yaml no longer has {old}"
        text = text.replace(old, new)
    return json.loads(text)


def make_config(folder: Path, server: SshServer, ports: Sequence[int]) -> dict[str, Any]:
    """cluster.local.yaml for this machine: its address, user, key, folder and ports, and this
    Python environment in place of a new one."""
    config = yaml.safe_load((ROOT / "cluster.local.yaml").read_text())
    config["cluster_name"] = folder.name
    config["provider"] |= {"head_ip": "127.0.0.1", "worker_ips": []}
    config["auth"] |= {"ssh_user": getuser(), "ssh_private_key": str(server.key)}
    installs = [c for c in config["setup_commands"] if "python" in c]
    assert len(installs) == 2, "the environment, and what is installed in it"
    first = config["setup_commands"].index(installs[0])
    config["setup_commands"][first : first + 2] = [f"ln -sfn {sys.prefix} ~/bermo_ray/.venv"]
    # The copy on the head is what runs there, as if it were installed.
    config["setup_commands"].append(
        "echo export PYTHONPATH=$HOME/bermo_ray >> ~/.bermo_ray.env"
    )  # fmt: skip
    replaced = dict(zip(PORTS, map(str, ports), strict=True))
    return here(config, replaced | {"/mnt/shared": str(folder / "shared")})


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.2)


def status_of(address: str) -> int | None:
    """The status of the answer; None without an answer."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_a_study_runs_as_a_job_and_as_a_driver_on_the_head(
    tiny: str, folder: Path, server: SshServer
) -> None:
    laptop, ports = Laptop(folder, server), [free_port() for _ in PORTS]
    _, dashboard, mlflow = ports
    uri = f"http://127.0.0.1:{mlflow}"
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(make_config(folder, server, ports)))
    laptop.call("get-auth-token", "--generate")
    laptop.call("up", "--yes", str(file))
    assert server.ray_processes()
    token = folder / "laptop" / ".ray" / "auth_token"
    assert (folder / "head" / ".ray" / "auth_token").read_text() == token.read_text()

    study = ("python", "studies/l0_frontier.py", *small_study(tiny), "--trials", "1", "--fresh")
    tunnel = free_port()
    forwarding = laptop.start(
        "dashboard", str(file), "--port", str(tunnel), "--remote-port", str(dashboard)
    )
    try:
        jobs = f"http://127.0.0.1:{tunnel}/api/jobs/"
        wait_until(lambda: status_of(jobs) is not None, "the tunnel to the dashboard")
        assert status_of(jobs) == 401, "whoever has no token submits nothing"
        address = ("--address", f"http://127.0.0.1:{tunnel}")
        said = laptop.call("job", "submit", *address, "--", *study, "--name", "as_job")
    finally:
        forwarding.terminate()
        forwarding.wait(60)
    assert "on the running Ray cluster" in said
    words = shlex.join((*study, "--name", "as_driver"))
    said = laptop.call("exec", str(file), f"cd ~/bermo_ray && {words}")
    assert "on the running Ray cluster" in said
    assert "View run" not in said, "MLflow's own lines would tear up the display"
    laptop.call("rsync-down", str(file), "~/bermo_ray/runs/", str(folder / "laptop" / "runs"))
    assert (folder / "laptop" / "runs" / "as_driver" / "trials.parquet").is_file()

    laptop.call("down", "--yes", str(file))
    wait_until(lambda: not server.ray_processes(), "the end of all of Ray")
    # MLflow goes on without Ray, so that there is something to look at.
    tables = [results.load(name, uri) for name in ("as_job", "as_driver")]
    assert [table.num_rows for table in tables] == [4, 4]
    assert all(Status(s).measured for table in tables for s in table["status"].to_pylist())
    for name, table in zip(("as_job", "as_driver"), tables, strict=True):
        place = str(folder / "shared" / "bermo" / name)
        assert all(path.startswith(place) for path in table["checkpoint"].to_pylist())
    assert tables[0]["metric"].to_pylist() == tables[1]["metric"].to_pylist()
    server.run(STOP_MLFLOW)
    wait_until(lambda: status_of(f"{uri}/health") is None, "the end of MLflow")


def test_beside_another_ray_nothing_is_started_that_would_end_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "raylet"
    shutil.copy(str(shutil.which("sleep")), program)
    other = subprocess.Popen([str(program), "600"])
    try:
        monkeypatch.setattr(ssh_server, "has_namespaces", lambda: False)
        server = SshServer(folder / "ssh", folder / "head", {})
        with pytest.raises(pytest.skip.Exception, match=rf"another Ray runs .*\b{other.pid}\b"):
            server.start()
    finally:
        other.kill()
        other.wait()
