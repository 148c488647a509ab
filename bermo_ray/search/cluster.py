"""Ray: start it or join it, and see before any trial whether the trials can run there at all."""

import os
from dataclasses import dataclass
from pathlib import Path

from bermo_ray.errors import UserError
from bermo_ray.training.trainer import Resources, quiet_environment

# Where `ray up` leaves the cluster's description on the head: what it may grow to.
BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")


@dataclass(frozen=True)
class Cluster:
    """What Ray has now, and what its autoscaler may add."""

    cpus: float
    gpus: float
    may_add_gpus: float
    started_here: bool


def connect() -> Cluster:
    """Joins the running cluster (RAY_ADDRESS, or one on this machine), else starts one here."""
    import ray

    os.environ.update({k: v for k, v in quiet_environment().items() if k not in os.environ})
    # Tune: our own display and records; state saved often, so that a kill loses little.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "2")
    os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "16")
    before = ray.is_initialized()
    try:
        ray.init(
            ignore_reinit_error=True,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": quiet_environment()},
        )
    except (ConnectionError, ValueError) as error:
        raise UserError(f"ray: {str(error).splitlines()[0]}") from error
    node = ray._private.worker._global_node
    ours = not before and node is not None and node.is_head()
    have = ray.cluster_resources()
    return Cluster(have.get("CPU", 0), have.get("GPU", 0), _growth(), ours)


def _growth() -> float:
    """GPUs that the autoscaler may add: Σ max_workers × GPUs over the cluster's node types."""
    import yaml

    file = BOOTSTRAP.expanduser()
    if not file.is_file():
        return 0.0
    types = (yaml.safe_load(file.read_text()) or {}).get("available_node_types", {})
    return float(
        sum(t.get("max_workers", 0) * t.get("resources", {}).get("GPU", 0) for t in types.values())
    )


def concurrency(cluster: Cluster, resources: Resources, asked: int | None) -> int:
    """How many trials run at once.

    Raises:
        UserError: not even one fits, with the numbers.
    """
    need_cpus = resources.workers * resources.cpus_per_worker
    need_gpus = resources.workers if resources.gpus else 0
    gpus = cluster.gpus + cluster.may_add_gpus
    if need_gpus > gpus:
        raise UserError(
            f"--gpus: a trial needs {need_gpus} GPU(s), this Ray cluster has {cluster.gpus:g} "
            f"and may add {cluster.may_add_gpus:g}; leave out --gpus or `ray up cluster.yaml`"
        )
    if not resources.gpus and need_cpus > cluster.cpus:
        raise UserError(
            f"--workers: a trial needs {need_cpus} CPUs ({resources.workers} workers × "
            f"{resources.cpus_per_worker}), this Ray cluster has {cluster.cpus:g}"
        )
    fit = gpus // need_gpus if need_gpus else cluster.cpus // need_cpus
    return max(1, min(int(fit), asked or int(fit)))
