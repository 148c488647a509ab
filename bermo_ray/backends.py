"""Where a study's trials run: on Ray, or in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from bermo_ray.record import Listener
from bermo_ray.search import in_process
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.plan import Plan
from bermo_ray.tracking.store import Store
from bermo_ray.training.reporter import Resources


class Backend(Protocol):
    """Where trials run; see :class:`bermo_ray.ray_backend.backend.RayBackend`."""

    def find_problems(self, store: Store) -> list[str]:
        """What it can see before it is opened that it can't do, one line each."""

    def open(self, store: Store) -> tuple[int, str]:
        """Gets ready; gives how many trials run at once, and where."""

    def run(
        self, dialogue: Dialogue, listeners: Sequence[Listener], store: Store, study: str
    ) -> Plan | None:
        """Runs all trials that have not ended; the plan with what it learned, or None when
        interrupted."""

    def close(self) -> None:
        """Frees what :meth:`open` took."""


class InProcessBackend:
    """Runs trials in this process, one after the other, on its CPUs."""

    def __init__(self, resources: Resources, concurrent: int | None = None) -> None:
        self.resources, self.concurrent = resources, concurrent

    def find_problems(self, store: Store) -> list[str]:
        """It has one worker, no GPU, one trial at a time, and writes to a folder."""
        problems = []
        if self.resources.workers > 1:
            problems.append(f"workers: got {self.resources.workers}, backend 'process' has one")
        if self.resources.gpus:
            problems.append("gpus: backend 'process' trains on CPUs")
        if (self.concurrent or 1) > 1:
            problems.append(f"concurrent: got {self.concurrent}, backend 'process' runs one")
        if "://" in store.checkpoints:
            problems.append(f"storage: got {store.checkpoints}, backend 'process' needs a folder")
        return problems

    def open(self, store: Store) -> tuple[int, str]:
        """Nothing has to be started."""
        return 1, "this process"

    def run(
        self, dialogue: Dialogue, listeners: Sequence[Listener], store: Store, study: str
    ) -> Plan | None:
        """Runs all trials that have not ended; an interruption is raised, not returned."""
        folder, threads = Path(store.checkpoints) / study, self.resources.cpus_per_worker
        return in_process.run_in_process(dialogue, listeners, folder, threads)

    def close(self) -> None:
        """Nothing was started."""


def make_backend(
    kind: Literal["ray", "process"],
    resources: Resources,
    concurrent: int | None = None,
    plugins: Sequence[str] = (),
    verbose: bool = False,
) -> Backend:
    """The backend of that kind; Ray is imported only where it is asked for."""
    if kind == "process":
        return InProcessBackend(resources, concurrent)
    from bermo_ray.ray_backend.backend import RayBackend

    return RayBackend(resources, concurrent, plugins, verbose)
