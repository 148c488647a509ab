"""An SSH server of a test's own, for `ray up` on this machine.

Nothing of the user's is touched: the server has its own keys, port and list of authorized keys, and
its sessions have a home of their own. Where the system allows it the server is the first process of
a PID namespace, so that `ray stop` in its sessions sees no other Ray, and all that was started
there ends with it. Elsewhere the test is skipped while another Ray runs.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from getpass import getuser
from pathlib import Path

import psutil
import pytest

from tests.support.system_packages import find_program

SSH_PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "rsync": "rsync",
    "curl": "curl",
}
_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_DEADLINE_SECONDS = 60


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_ray_processes(among: list[psutil.Process]) -> list[psutil.Process]:
    """Those that `ray stop` would end, by Ray's own list of what it looks for."""
    from ray.autoscaler._private.constants import RAY_PROCESSES

    def is_ray(process: psutil.Process) -> bool:
        try:
            name, line = process.name(), " ".join(process.cmdline())
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False
        return alive and any(word in (name if by_name else line) for word, by_name in RAY_PROCESSES)

    return [process for process in among if is_ray(process)]


def has_namespaces() -> bool:
    """Whether a process may be started that sees no processes but its own."""
    if shutil.which(_NAMESPACE[0]) is None:
        return False
    return subprocess.run([*_NAMESPACE, "true"], capture_output=True).returncode == 0


class SshServer:
    """Listens on 127.0.0.1 from :meth:`start` to :meth:`stop`.

    Args:
        folder: Keys, settings and log go here.
        home: Home of the sessions.
        variables: What the sessions find in their environment.
    """

    def __init__(self, folder: Path, home: Path, variables: dict[str, str]) -> None:
        self.key, self.port = folder / "key", free_port()
        self._folder, self._home, self._variables = folder, home, variables
        self._process: subprocess.Popen[bytes] | None = None
        self._prefix: tuple[str, ...] = ()
        self._made_folder: Path | None = None

    def start(self) -> None:
        """Starts it and waits for the first session; skips the test beside another Ray."""
        if has_namespaces():
            self._prefix = _NAMESPACE
        elif others := find_ray_processes(list(psutil.process_iter())):
            pids = [process.pid for process in others]
            pytest.skip(
                f"another Ray runs on this machine, which `ray stop` would end: PIDs {pids}"
            )
        self._write_files()
        sshd = find_program("sshd")
        assert sshd is not None, "install_programs(SSH_PACKAGES) comes first"
        with (self._folder / "log").open("wb") as log:
            call = [*self._prefix, sshd, "-D", "-e", "-f", str(self._folder / "sshd_config")]
            self._process = subprocess.Popen(call, stdout=log, stderr=log)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while self.run("true").returncode:
            said = (self._folder / "log").read_text()
            assert self._process.poll() is None, f"sshd ended: {said}"
            assert time.monotonic() < deadline, f"sshd lets no one in: {said}"
            time.sleep(0.2)

    def _write_files(self) -> None:
        for name in ("key", "host_key"):
            file = str(self._folder / name)
            call = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file]
            subprocess.run(call, check=True)
        shutil.copy(self._folder / "key.pub", self._folder / "authorized_keys")
        variables = {"HOME": str(self._home)} | self._variables
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self._folder / "host_key",
            "AuthorizedKeysFile": self._folder / "authorized_keys",
            "StrictModes": "no",  # temporary folders may be written by all
            "PidFile": "none",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "SetEnv": " ".join(f"{name}={value}" for name, value in variables.items()),
        }
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (self._folder / "sshd_config").write_text(text)
        # Ray has no field for the port, but calls `ssh` by this name, and so does rsync.
        shim = self._folder / "bin" / "ssh"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F none -p {self.port} "$@"\n')
        shim.chmod(0o755)
        if os.geteuid() == 0 and not Path("/run/sshd").exists():
            self._made_folder = Path("/run/sshd")  # sshd asks for it; a boot would have made it
            self._made_folder.mkdir(mode=0o755)

    @property
    def programs(self) -> Path:
        """Folder with the `ssh` that finds this server; to be put first in PATH."""
        return self._folder / "bin"

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a shell command in a session."""
        options = ["-i", str(self.key), "-o", "StrictHostKeyChecking=no"]
        options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        call = [str(self.programs / "ssh"), *options, f"{getuser()}@127.0.0.1", command]
        return subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)

    def ray_processes(self) -> list[psutil.Process]:
        """What sessions have started and left running."""
        assert self._process is not None, "start() comes first"
        if self._prefix:  # orphans go to the first process of the namespace
            return find_ray_processes(psutil.Process(self._process.pid).children(recursive=True))
        return find_ray_processes(list(psutil.process_iter()))

    def stop(self) -> None:
        """Ends it and, in a namespace, all that was started there."""
        if self._process is not None:
            # unshare holds back other signals; sshd takes this one as its end.
            self._process.send_signal(signal.SIGKILL if self._prefix else signal.SIGTERM)
            self._process.wait(_DEADLINE_SECONDS)
        if self._made_folder is not None:
            self._made_folder.rmdir()
