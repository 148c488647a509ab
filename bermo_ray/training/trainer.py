"""Trial -> a running loop, by three backends that give the same numbers at world size 1.

``run_locally``: no Ray at all (tests, notebooks). ``in_process``: in the Tune trial's own process,
for one worker: an inner trainer would cost 26 s a trial, this costs nothing once the process is
reused. ``data_parallel``: Ray Train's TorchTrainer inside the Tune trial, for two workers or more.
"""

import os
import platform
import shutil
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bermo_ray.training.loop import Report, train
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class Resources:
    """Where a trial runs; none of it changes what is computed at a given number of workers."""

    workers: int = 1
    gpus: bool = False
    cpus_per_worker: int = 1  # and threads of torch: another number may change the last bits


@dataclass
class LocalReporter:
    """Runs the loop in this process; keeps the newest checkpoint in ``folder`` if one is given."""

    folder: Path | None = None
    reports: list[Report] = field(default_factory=list)
    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def resume_from(self) -> Path | None:
        """The checkpoint of an earlier run in the same folder."""
        return self.folder if self.folder and any(self.folder.glob("progress.json")) else None

    def report(self, metrics: Report, save: Callable[[Path], None] | None) -> None:
        """Remembers the report; the checkpoint replaces the one before it in one move."""
        self.reports.append(metrics)
        if save and self.folder:
            new = self.folder.with_name(self.folder.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            save(new)
            shutil.rmtree(self.folder, ignore_errors=True)
            new.replace(self.folder)


def run_locally(trial: Trial, folder: Path | None = None, threads: int = 1) -> list[Report]:
    """Trains without Ray and gives all reports; goes on from a checkpoint found in ``folder``."""
    torch.set_num_threads(threads)
    reporter = LocalReporter(folder)
    train(trial, reporter)
    return reporter.reports


class _RayReporter:
    """Reports through ``ray.tune`` or ``ray.train``, which have the same calls."""

    def __init__(self, session: Any, rank: int, world_size: int, gpus: bool) -> None:
        self.session = session
        self.rank = rank
        self.world_size = world_size
        self.device = _device(gpus)
        self._resumed: tempfile.TemporaryDirectory[str] | None = None

    def resume_from(self) -> Path | None:
        found = self.session.get_checkpoint()
        if found is None:
            return None
        self._resumed = tempfile.TemporaryDirectory(prefix="bermo-resume-")
        return Path(found.to_directory(self._resumed.name))

    def report(self, metrics: Report, save: Callable[[Path], None] | None) -> None:
        if metrics["final"]:
            metrics = metrics | {"hardware": _hardware(self.device, self.world_size)}
        if save is None or self.rank != 0:
            self.session.report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix="bermo-checkpoint-") as folder:
            save(Path(folder))
            self.session.report(metrics, checkpoint=self.session.Checkpoint.from_directory(folder))


def _device(gpus: bool) -> torch.device:
    if not gpus:
        return torch.device("cpu")
    from ray.train.torch import get_device

    return get_device() if torch.distributed.is_initialized() else torch.device("cuda", 0)


def _hardware(device: torch.device, workers: int) -> str:
    """What the trial ran on, for its record."""
    if device.type == "cuda":
        return f"{workers} × {torch.cuda.get_device_name(device)}"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{workers} × {torch.get_num_threads()} thread(s) of {name}"


def trainable(config: dict[str, Any]) -> None:
    """What Tune runs for a trial. ``config``: ``trial`` (JSON), ``resources``, ``storage``.

    A Python error is a result, ``status=failed`` with its reason: the study goes on and does not
    try the same mistake again. A lost process or node is Tune's to retry.
    """
    from ray import tune

    resources = Resources(**config["resources"])
    try:
        if resources.workers == 1:
            in_process(Trial.from_json(config["trial"]), resources)
        else:
            data_parallel(config["trial"], resources, config["storage"])
    except Exception as error:
        failed = {"final": True, "status": "failed", "reason": _reason(error), "step": 0}
        tune.report(failed | {"traceback": traceback.format_exc()})


def _reason(error: Exception) -> str:
    """One line: the error's own first line or, of several workers, the last of what broke them."""
    workers = [str(e).strip() for e in getattr(error, "worker_failures", {}).values()]
    if workers and workers[0]:
        return workers[0].splitlines()[-1]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def in_process(trial: Trial, resources: Resources) -> None:
    """One worker: the loop runs in the Tune trial's own process."""
    from ray import tune

    torch.set_num_threads(resources.cpus_per_worker)
    train(trial, _RayReporter(tune, 0, 1, resources.gpus))


def data_parallel(trial_json: str, resources: Resources, storage: str) -> None:
    """Several workers: Ray Train's TorchTrainer; gloo on CPUs, NCCL on GPUs.

    The inner run has the trial's id as its name, so that a resumed trial finds its checkpoints.
    """
    import ray.train
    from ray import tune
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    per_worker: dict[str, float] = {"CPU": resources.cpus_per_worker}
    TorchTrainer(
        _worker,
        train_loop_config={"trial": trial_json, "resources": vars(resources)},
        torch_config=TorchConfig(backend="nccl" if resources.gpus else "gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=resources.workers,
            use_gpu=resources.gpus,
            resources_per_worker=per_worker | ({"GPU": 1} if resources.gpus else {}),
        ),
        run_config=ray.train.RunConfig(
            name=f"train-{tune.get_context().get_trial_id()}",
            storage_path=storage,
            callbacks=[TuneReportCallback()],
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
            # No limit to failed starts: nodes of an autoscaled cluster take minutes to come up.
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    ).fit()


def _worker(config: dict[str, Any]) -> None:
    import ray.train

    resources = Resources(**config["resources"])
    torch.set_num_threads(resources.cpus_per_worker)
    context = ray.train.get_context()
    reporter = _RayReporter(
        ray.train, context.get_world_rank(), context.get_world_size(), resources.gpus
    )
    train(Trial.from_json(config["trial"]), reporter)


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
