"""A trial as Tune runs it, by two backends that give the same numbers at world size 1.

With one worker the loop runs in the Tune trial's own process: an inner trainer would cost 26 s per
trial, this costs nothing once the process is reused. With more, Ray Train's TorchTrainer runs
inside the Tune trial. What crosses processes is JSON: ``report``, and ``history`` after a resume.

Checkpoints are a trial's own matter (:class:`CheckpointFolder`), neither Tune's nor Train's: these
know what they saved last only as of the last time that they saved their state.
"""

import json
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bermo_ray import plugins
from bermo_ray.ray_backend.progress import BoardWriter
from bermo_ray.record import Report, Status
from bermo_ray.search.trial_names import name_folder
from bermo_ray.space import OutOfSpaceError
from bermo_ray.training.checkpoint_folder import CheckpointFolder, SaveCheckpoint
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class TrialConfig:
    """What Tune hands to a trial's process, besides the trial itself."""

    resources: Resources
    storage: str  # folder or URI of the study's checkpoints
    plugins: tuple[str, ...] = ()  # modules to import first

    def to_tune(self, attempt: str, trial: Trial) -> dict[str, Any]:
        """As plain values for Tune's config."""
        about = {"attempt": attempt, "trial": trial.to_json()}
        return about | asdict(self) | {"plugins": list(self.plugins)}

    @classmethod
    def from_tune(cls, config: dict[str, Any]) -> "TrialConfig":
        """The inverse of :meth:`to_tune`."""
        resources = Resources(**config["resources"])
        return cls(resources, config["storage"], tuple(config["plugins"]))


def encode_result(
    report: Report, history: Sequence[Report] = (), checkpoint: str = ""
) -> dict[str, str]:
    """A report for Tune, which would flatten a dict and mix its own keys with ours."""
    result = {"report": json.dumps(report.to_dict()), "checkpoint": checkpoint}
    if history:
        result["history"] = json.dumps([earlier.to_dict() for earlier in history])
    return result


def decode_report(result: dict[str, Any] | None) -> Report | None:
    """The report in one of Tune's results, if there is one."""
    text = (result or {}).get("report")
    return None if text is None else Report.from_dict(json.loads(text))


def decode_history(result: dict[str, Any]) -> list[Report]:
    """All reports in one of Tune's results, the newest last."""
    history = [Report.from_dict(r) for r in json.loads(result.get("history", "[]"))]
    last = decode_report(result)
    return history if last is None else [*history, last]


class RayReporter:
    """A :class:`bermo_ray.training.reporter.Reporter` through ``ray.tune`` or ``ray.train``, which
    have the same calls.

    Args:
        session: The one or the other.
        rank: Of this worker.
        world_size: How many there are.
        gpus: Whether it has one.
        checkpoint: Where the trial's checkpoint lies.
        attempt: Whose progress is told; empty: nobody's.
    """

    def __init__(
        self,
        session: Any,
        rank: int,
        world_size: int,
        gpus: bool,
        checkpoint: CheckpointFolder,
        attempt: str = "",
    ) -> None:
        self.session, self.rank, self.world_size = session, rank, world_size
        self.device, self.checkpoint = _find_device(gpus), checkpoint
        self._board = BoardWriter(attempt) if attempt and rank == 0 else None

    def resume_from(self) -> Path | None:
        """The trial's checkpoint, of whatever process; rank 0 puts it in its place before anybody
        looks for it."""
        import torch

        if self.rank == 0:
            self.checkpoint.settle()
        if self.world_size > 1:
            torch.distributed.barrier()
        return self.checkpoint.find()

    def progress(self, share: float) -> None:
        """Rank 0 tells the board."""
        if self._board is not None:
            self._board.tell(share)

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        """Passes the report on, once rank 0 has saved the checkpoint that belongs to it."""
        if save is not None and self.rank == 0:
            self.checkpoint.write(save)
        self.session.report(encode_result(report, history, self.checkpoint.location))


def open_folder(storage: str, trial: Trial) -> CheckpointFolder:
    """Where a trial's checkpoint lies within its study's."""
    return CheckpointFolder(f"{storage}/{name_folder(trial)}")


def _find_device(gpus: bool) -> Any:
    import torch

    if not gpus:
        return torch.device("cpu")
    from ray.train.torch import get_device

    return get_device() if torch.distributed.is_initialized() else torch.device("cuda", 0)


def run_trial(config: dict[str, Any]) -> None:
    """What Tune runs for a trial; ``config`` is :meth:`TrialConfig.to_tune`'s.

    A Python error is a result, ``status=failed`` with its reason: the study goes on and does not
    try the same mistake again. A lost process or node is Tune's to retry.
    """
    from ray import tune

    try:
        settings = TrialConfig.from_tune(config)
        plugins.load_plugins(settings.plugins)
        if settings.resources.workers == 1:
            train_in_process(config["attempt"], config["trial"], settings)
        else:
            train_in_parallel(config["attempt"], config["trial"], settings)
    except Exception as error:
        # A full disk is no result of the trial's: the study ends, and this one goes on later.
        full = find_out_of_space(error)
        failed = Report(
            status=Status.INTERRUPTED if full else Status.FAILED,
            reason=full or _one_line(error),
            traceback="" if full else traceback.format_exc(),
        )
        tune.report(encode_result(failed))


def find_out_of_space(error: Exception) -> str | None:
    """What an error says of a full disk; that of a worker among several is within it, as text."""
    if isinstance(error, OutOfSpaceError):
        return str(error)
    for failure in getattr(error, "worker_failures", {}).values():
        lines = str(failure).splitlines()
        marked = [line for line in lines if OutOfSpaceError.__name__ in line]
        if marked:
            return marked[-1].partition(f"{OutOfSpaceError.__name__}: ")[2]
    return None


def _one_line(error: Exception) -> str:
    """The error's own first line or, of several workers, the last of what broke them."""
    failures = [str(e).strip() for e in getattr(error, "worker_failures", {}).values()]
    if failures and failures[0]:
        return failures[0].splitlines()[-1]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def train_in_process(attempt: str, trial_json: str, settings: TrialConfig) -> None:
    """One worker: the loop runs in the Tune trial's own process."""
    import torch
    from ray import tune

    from bermo_ray.training.loop import train

    torch.set_num_threads(settings.resources.cpus_per_worker)
    trial, gpus = Trial.from_json(trial_json), settings.resources.gpus
    train(trial, RayReporter(tune, 0, 1, gpus, open_folder(settings.storage, trial), attempt))


def train_in_parallel(attempt: str, trial_json: str, settings: TrialConfig) -> None:
    """Several workers: Ray Train's TorchTrainer; gloo on CPUs, NCCL on GPUs.

    Like Tune's, the state that Train saves is not used, so that it goes to a folder of its own.
    """
    import ray.train
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    from bermo_ray.ray_backend.process_group import make_torch_config

    resources, trial = settings.resources, Trial.from_json(trial_json)
    per_worker: dict[str, float] = {"CPU": resources.cpus_per_worker}
    with tempfile.TemporaryDirectory(prefix="bermo-train-", ignore_cleanup_errors=True) as folder:
        TorchTrainer(
            _train_worker,
            train_loop_config=settings.to_tune(attempt, trial),
            torch_config=make_torch_config("nccl" if resources.gpus else "gloo"),
            scaling_config=ray.train.ScalingConfig(
                num_workers=resources.workers,
                use_gpu=resources.gpus,
                resources_per_worker=per_worker | ({"GPU": 1} if resources.gpus else {}),
            ),
            run_config=ray.train.RunConfig(
                name=f"train-{attempt}",
                storage_path=folder,
                callbacks=[TuneReportCallback()],
                # No limit to failed starts: nodes of an autoscaled cluster take minutes to come up.
                failure_config=ray.train.FailureConfig(max_failures=2),
            ),
        ).fit()


def _train_worker(config: dict[str, Any]) -> None:
    import ray.train
    import torch

    from bermo_ray.training.loop import train

    settings = TrialConfig.from_tune(config)
    plugins.load_plugins(settings.plugins)
    torch.set_num_threads(settings.resources.cpus_per_worker)
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    trial, gpus = Trial.from_json(config["trial"]), settings.resources.gpus
    folder, attempt = open_folder(settings.storage, trial), config["attempt"]
    train(trial, RayReporter(ray.train, rank, world_size, gpus, folder, attempt))
