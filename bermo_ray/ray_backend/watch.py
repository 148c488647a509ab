"""Sees that Ray itself has died, which its own calls wait for, or report in sixty lines."""

import socket
import threading
from typing import Any

import psutil
import ray

from bermo_ray.errors import StudyHaltedError

_SECONDS_BETWEEN = 1.0  # looks
_TRIAL = "ray::ImplicitFunc"  # what a process is called that runs a function as a trial of Tune's
_FAILURES = 3  # in a row, until a port that does not answer means a process that is gone


class RayDiedError(StudyHaltedError):
    """A process that Ray can't do without has ended."""

    leaves_threads = True


class RayWatch:
    """Looks every second whether Ray's control process and this node's raylet answer.

    Args:
        owned: Whether this process started Ray, so that what is left of it is ended too.
    """

    def __init__(self, owned: bool) -> None:
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        self._addresses = {"control process (gcs_server)": (host, int(port))}
        node_id = ray.get_runtime_context().get_node_id()
        for node in ray.nodes():
            if node["NodeID"] == node_id:
                address = (node["NodeManagerAddress"], int(node["NodeManagerPort"]))
                self._addresses["raylet"] = address
        self._owned = owned
        self._processes: dict[int, psutil.Process] = {}  # that this one has started, by their ids
        self._failures = dict.fromkeys(self._addresses, 0)
        self.dead: str | None = None
        """What has died, once something has."""
        self._ended = threading.Event()
        threading.Thread(target=self._look_on, name="bermo-ray-watch", daemon=True).start()

    def close(self) -> None:
        """Looks no more."""
        self._ended.set()

    def kill_trials(self) -> None:
        """Ends the processes that Tune waits for, and no other of Ray's."""
        self._find_processes()
        for process in self._processes.values():
            if _name_of(process).startswith(_TRIAL):
                _kill(process)

    def clean_up(self) -> RayDiedError:
        """Ends what is left of a Ray that has died; gives what to say of it."""
        self.close()
        self._find_processes()
        for process in self._processes.values():
            _kill(process)
        # No `ray.shutdown()`: the next call of Tune's thread would start another Ray.
        return RayDiedError(f"ray: its {self.dead} died, so that no trial can go on")

    def _look_on(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN):
            self._find_processes()
            for name, address in self._addresses.items():
                self._failures[name] = 0 if _answers(address) else self._failures[name] + 1
                if self._failures[name] >= _FAILURES:
                    self.dead = name
                    return

    def _find_processes(self) -> None:
        for process in psutil.Process().children(recursive=True) if self._owned else ():
            self._processes[process.pid] = process


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError:
        return False
    return True


def _name_of(process: Any) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _kill(process: Any) -> None:
    try:
        if process.is_running():  # and not another one that has its number now
            process.kill()
    except psutil.Error:
        pass
