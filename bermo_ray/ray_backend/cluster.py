"""Ray: start it or join it, and see before any trial whether the trials can run there at all."""

import contextlib
import gc
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.passwords import hide_password
from bermo_ray.training.reporter import Resources

# Where `ray up` leaves the cluster's description on the head: what it may grow to.
BOOTSTRAP_CONFIG = Path("~/ray_bootstrap_config.yaml")


@dataclass(frozen=True)
class Cluster:
    """What Ray has now, and what its autoscaler may make of it."""

    cpus: float
    gpus: float
    most_gpus: float  # with all nodes that the autoscaler may start
    gpu_node_cpus: float  # CPUs of the largest node with a GPU
    nodes: int  # that there are or may be
    started_here: bool


def connect(py_modules: Sequence[str] = (), verbose: bool = False) -> Cluster:
    """Joins the running cluster (RAY_ADDRESS, or one on this machine), else starts one here, which
    listens on this machine's loopback alone.

    Args:
        py_modules: Files or folders of modules that Ray sends to every worker.
        verbose: Whether to show what Ray and the workers print.
    """
    import ray

    os.environ.update({k: v for k, v in quiet_environment().items() if k not in os.environ})
    # Tune: our own display and records; its state, which nobody reads, is saved once per hour.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")
    os.environ.setdefault("TUNE_DISABLE_AUTO_INIT", "1")  # see `starting_no_other_ray`
    for name in ("ray.tune", "ray.train"):  # what they say of a trial is in its record
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
    was_initialized = ray.is_initialized()
    environment: dict[str, Any] = {"env_vars": quiet_environment()}
    if py_modules:
        environment["py_modules"] = list(py_modules)
        sent = ray.get_runtime_context().runtime_env if was_initialized else environment
        if not sent.get("py_modules"):
            raise UserError(
                "plugin: Ray was started before the study, so its workers do not have the modules; "
                f"start it with runtime_env={{'py_modules': {list(py_modules)}}}, or not at all"
            )
    try:
        with _hiding_passwords(), _listening_on_loopback():
            ray.init(
                ignore_reinit_error=True,
                log_to_driver=verbose,
                logging_level="INFO" if verbose else "ERROR",
                runtime_env=environment,
            )
    except (ConnectionError, ValueError) as error:
        raise UserError(f"ray: {str(error).splitlines()[0]}") from error
    node = ray._private.worker._global_node
    resources = ray.cluster_resources()
    alive = [n["Resources"] for n in ray.nodes() if n["Alive"]]
    most_gpus, node_cpus, workers = _read_growth()
    return Cluster(
        cpus=resources.get("CPU", 0),
        gpus=resources.get("GPU", 0),
        most_gpus=max(resources.get("GPU", 0), most_gpus),
        gpu_node_cpus=max([node_cpus, *(n.get("CPU", 0) for n in alive if n.get("GPU"))]),
        nodes=max(len(alive), 1 + workers),
        started_here=not was_initialized and node is not None and node.is_head(),
    )


def disconnect(cluster: Cluster) -> None:
    """Stops what :func:`connect` started; a cluster that was joined goes on."""
    import ray

    if cluster.started_here:
        with _collecting_no_garbage():
            ray.shutdown()


@contextlib.contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """What Tune has left refers to Ray. A thread that collects it while Ray shuts down, as the one
    that draws figures for MLflow may, ends this process: so it is collected before, and not in this
    block."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _listening_on_loopback() -> Iterator[None]:
    """A Ray that is started in this block listens on loopback; to join one, nothing is changed.

    ``ray.init(_node_ip_address="127.0.0.1")`` would do nothing: Ray replaces it by the address that
    other machines see. This constant is what keeps Ray on loopback on macOS and Windows, and then
    all of its processes, which take their address from the one that starts them.
    """
    from ray._private import ray_constants

    if _joins_cluster():
        yield
        return
    with _replaced(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


def _joins_cluster() -> bool:
    """Whether ``ray.init`` would join a cluster, found as it does."""
    import ray
    from ray._private import services

    address = os.environ.get("RAY_ADDRESS", "")
    if ray.is_initialized() or "://" in address:
        return True
    return services.canonicalize_bootstrap_address(address or None) is not None


@contextlib.contextmanager
def _hiding_passwords() -> Iterator[None]:
    """Ray keeps the command line of whoever connects in this block, without passwords."""
    from ray._private import utils

    read_command_line = utils.get_entrypoint_name

    def read_without_passwords() -> str:
        return hide_password(read_command_line())

    with _replaced(utils, "get_entrypoint_name", read_without_passwords):
        yield


@contextlib.contextmanager
def keeping_cloud_keys() -> Iterator[None]:
    """Tune, in this block, does not send this process's AWS keys to trials: Ray would write them in
    its log. The processes of a Ray of our own have them anyway, and those of a cluster its nodes'.
    """
    from ray.tune.execution import class_cache

    sent = {name for name in class_cache.ENV_VARS_TO_PROPAGATE if not name.startswith("AWS_")}
    with _replaced(class_cache, "ENV_VARS_TO_PROPAGATE", sent):
        yield


@contextlib.contextmanager
def starting_no_other_ray() -> Iterator[None]:
    """Ray's functions, in this block, fail once Ray has been shut down. By default they would start
    another Ray, which listens on all interfaces and which nobody ends."""
    from ray._private import auto_init_hook

    with _replaced(auto_init_hook, "enable_auto_connect", False):
        yield


@contextlib.contextmanager
def hiding_worker_logs() -> Iterator[None]:
    """Ray, in this block, prints nothing of its workers: neither their words nor that they died."""
    from ray._private import worker

    with _replaced(worker, "_worker_logs_enabled", False):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value for an attribute of Ray's; an AttributeError where a version has none."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def quiet_environment() -> dict[str, str]:
    """Variables for Ray's processes: no usage report, no noise, reports every 0.1 s."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
        # An actor that is reused waits this long for the trial before to wind up.
        "TUNE_FUNCTION_THREAD_TIMEOUT_S": "60",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore"),
    }


def _read_growth() -> tuple[float, float, int]:
    """What the autoscaler may come to: GPUs in all, CPUs of its largest GPU node, worker nodes."""
    import yaml

    file = BOOTSTRAP_CONFIG.expanduser()
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


def count_concurrent(cluster: Cluster, resources: Resources, asked: int | None) -> int:
    """How many trials run at once.

    Raises:
        UserError: not even one fits, with the numbers.
    """
    workers, cpus = resources.workers, resources.cpus_per_worker
    if resources.gpus:
        if workers > cluster.most_gpus:
            raise UserError(
                f"gpus: a trial needs {workers} GPU(s), this Ray cluster has {cluster.gpus:g} and "
                f"may grow to {cluster.most_gpus:g}; do without, or `ray up cluster.yaml`"
            )
        if cpus > cluster.gpu_node_cpus:
            raise UserError(
                f"cpus_per_worker: got {cpus}, but a node with a GPU has "
                f"{cluster.gpu_node_cpus:g} CPUs"
            )
        fitting: float = resources.fitting(cluster.most_gpus)
    else:
        if workers * cpus > cluster.cpus:
            raise UserError(
                f"workers: a trial needs {workers * cpus} CPUs ({workers} workers × {cpus}), this "
                f"Ray cluster has {cluster.cpus:g}"
            )
        fitting = cluster.cpus // (workers * cpus)
    return min(int(fitting), asked or int(fitting))
