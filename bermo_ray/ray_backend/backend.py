"""Ray as the place where a study's trials run."""

import contextlib
from collections.abc import Sequence

from bermo_ray import plugins
from bermo_ray.errors import UserError
from bermo_ray.ray_backend import cluster
from bermo_ray.ray_backend.trials import TrialConfig
from bermo_ray.ray_backend.tuner import PlanRun
from bermo_ray.ray_backend.watch import RayWatch
from bermo_ray.record import Listener
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.plan import Plan
from bermo_ray.tracking.store import STORAGE_VARIABLE, Store
from bermo_ray.training.reporter import Resources

_SECONDS_TO_LEAVE = 15.0  # Tune gives a process that does not answer ten


class RayBackend:
    """Runs trials on the Ray cluster that is there, or on one of its own.

    1. :meth:`open` connects, and refuses what the cluster can never run.
    2. :meth:`run` runs a plan, or goes on with one that was cut off.
    3. :meth:`close` stops the cluster if :meth:`open` started it.
    """

    def __init__(
        self,
        resources: Resources,
        concurrent: int | None = None,
        plugins: Sequence[str] = (),
        verbose: bool = False,
    ) -> None:
        self.resources, self.concurrent, self.plugins = resources, concurrent, tuple(plugins)
        self.verbose = verbose
        self._cluster: cluster.Cluster | None = None

    def find_problems(self, store: Store) -> list[str]:
        """What the cluster can run is seen once it is joined."""
        return []

    def open(self, store: Store) -> tuple[int, str]:
        """Connects; gives how many trials run at once, and where.

        Raises:
            UserError: not even one trial fits, or nodes would not see each other's checkpoints.
        """
        self._cluster = cluster.connect(plugins.plugin_paths(self.plugins), self.verbose)
        at_once = cluster.count_concurrent(self._cluster, self.resources, self.concurrent)
        if self._cluster.nodes > 1 and not store.is_shared:
            raise UserError(
                "storage: trials may move between the cluster's nodes; give a folder or URI that "
                f"all of them see (or set {STORAGE_VARIABLE})"
            )
        kind = "a Ray of its own" if self._cluster.started_here else "the running Ray cluster"
        size = f"{self._cluster.cpus:g} CPUs, {self._cluster.gpus:g} GPUs"
        return at_once, f"{kind} ({size})"

    def run(
        self, dialogue: Dialogue, listeners: Sequence[Listener], store: Store, study: str
    ) -> Plan | None:
        """Runs all trials that have not ended; the plan with what it learned, or None when
        interrupted.

        Raises:
            RayDiedError: a process that Ray can't do without has ended.
            OutOfSpaceError: a disk is full.
        """
        assert self._cluster is not None, "open() comes first"
        concurrent = cluster.count_concurrent(self._cluster, self.resources, self.concurrent)
        config = TrialConfig(self.resources, f"{store.checkpoints}/{study}", self.plugins)
        run = PlanRun(dialogue, config, listeners, name=study, concurrent=concurrent)
        watch = RayWatch(self._cluster.started_here)
        try:
            with cluster.keeping_cloud_keys():
                if run.wait(lambda: watch.dead is not None):
                    return run.result()
        except KeyboardInterrupt:
            self._leave(run, watch)
            raise
        finally:
            watch.close()
        self._cluster = None  # there is nothing left to be closed
        died = watch.clean_up()
        for listener in listeners:
            with contextlib.suppress(UserError):  # the first error is the one to tell
                listener.on_close()
        raise died

    def _leave(self, run: PlanRun, watch: RayWatch) -> None:
        """Ends a run whose trials need not wind up: their processes are ended, so that Tune waits
        for none of them. Ray is shut down behind it, for Tune's calls would not return then."""
        with cluster.hiding_worker_logs():
            watch.kill_trials()
            run.join(_SECONDS_TO_LEAVE)
            self.close()

    def close(self) -> None:
        """Leaves a cluster that was joined as it is."""
        if self._cluster is not None:
            cluster.disconnect(self._cluster)
            self._cluster = None
