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
    """What Ray has now, and what its autoscaler may make of it."""

    cpus: float
    gpus: float
    most_gpus: float  # with all nodes that the autoscaler may start
    gpu_node_cpus: float  # CPUs of the largest node with a GPU
    nodes: int  # that there are or may be
    started_here: bool


def connect() -> Cluster:
    """Joins the running cluster (RAY_ADDRESS, or one on this machine), else starts one here."""
    import ray

    os.environ.update({k: v for k, v in quiet_environment().items() if k not in os.environ})
    # Tune: our own display and records; state saved often, so that a kill loses little.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "2")
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
    alive = [n["Resources"] for n in ray.nodes() if n["Alive"]]
    most_gpus, node_cpus, workers = _growth()
    return Cluster(
        cpus=have.get("CPU", 0),
        gpus=have.get("GPU", 0),
        most_gpus=max(have.get("GPU", 0), most_gpus),
        gpu_node_cpus=max([node_cpus, *(n.get("CPU", 0) for n in alive if n.get("GPU"))]),
        nodes=max(len(alive), 1 + workers),
        started_here=ours,
    )


def _growth() -> tuple[float, float, int]:
    """What the autoscaler may come to: GPUs in all, CPUs of its largest GPU node, worker nodes."""
    import yaml

    file = BOOTSTRAP.expanduser()
    content = (yaml.safe_load(file.read_text()) or {}) if file.is_file() else {}
    types = content.get("available_node_types", {})
    workers = [
        (t.get("resources", {}), t.get("max_workers", content.get("max_workers", 0)))
        for name, t in types.items()
        if name != content.get("head_node_type")
    ]
    gpus = [(r.get("GPU", 0), count) for r, count in workers]
    most = min(
        sum(each * count for each, count in gpus),
        content.get("max_workers", 0) * max([each for each, _ in gpus], default=0),
    )
    cpus = max([r.get("CPU", 0) for r, count in workers if r.get("GPU") and count], default=0)
    nodes = min(content.get("max_workers", 0), sum(count for _, count in workers))
    return float(most), float(cpus), int(nodes)


def concurrency(cluster: Cluster, resources: Resources, asked: int | None) -> int:
    """How many trials run at once.

    Raises:
        UserError: not even one fits, with the numbers.
    """
    each = resources.cpus_per_worker
    if resources.gpus:
        if resources.workers > cluster.most_gpus:
            raise UserError(
                f"--gpus: a trial needs {resources.workers} GPU(s), this Ray cluster has "
                f"{cluster.gpus:g} and may grow to {cluster.most_gpus:g}; leave out --gpus or "
                "`ray up cluster.yaml`"
            )
        if each > cluster.gpu_node_cpus:
            raise UserError(
                f"--cpus-per-worker: got {each}, but a node with a GPU has "
                f"{cluster.gpu_node_cpus:g} CPUs"
            )
        fit = cluster.most_gpus // resources.workers
    else:
        if resources.workers * each > cluster.cpus:
            raise UserError(
                f"--workers: a trial needs {resources.workers * each} CPUs ({resources.workers} "
                f"workers × {each}), this Ray cluster has {cluster.cpus:g}"
            )
        fit = cluster.cpus // (resources.workers * each)
    return min(int(fit), asked or int(fit))
