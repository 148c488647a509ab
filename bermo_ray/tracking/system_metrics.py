"""What the machine did while a study ran: processors, memory, disk, network and GPUs, as MLflow's
system metrics of the study's own run."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from bermo_ray.errors import UserError
from bermo_ray.tracking.addresses import full_address

SAMPLING_SECONDS = 10.0


def check_system_metrics() -> None:
    """Whether they can be measured here.

    Raises:
        UserError: a package is missing.
    """
    if importlib.util.find_spec("psutil") is None:
        raise UserError("system_metrics: they take psutil; pip install psutil")


@contextmanager
def record_system_metrics(uri: str, run_id: str, enabled: bool = True) -> Iterator[None]:
    """Measures this machine in a thread of its own, and writes to a run until the block ends.

    Args:
        uri: MLflow's store.
        run_id: The run that they are written to.
        enabled: Whether to measure at all.
    """
    if not enabled:
        yield
        return
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(
        run_id,
        sampling_interval=SAMPLING_SECONDS,
        resume_logging=True,
        tracking_uri=full_address(uri),
    )
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()
