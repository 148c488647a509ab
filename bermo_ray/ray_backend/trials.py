"""A trial as Tune runs it, by two backends that give the same numbers at world size 1.

With one worker the loop runs in the Tune trial's own process: an inner trainer would cost 26 s per
trial, this costs nothing once the process is reused. With more, Ray Train's TorchTrainer runs
inside the Tune trial. What crosses processes is JSON: ``report``, and ``history`` after a resume.
"""

import json
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bermo_ray import plugins
from bermo_ray.ray_backend.progress import BoardWriter
from bermo_ray.record import Report, Status
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class TrialConfig:
    """What Tune hands to a trial's process, besides the trial itself."""

    resources: Resources
    storage: str  # folder or URI of the checkpoints
    plugins: tuple[str, ...] = ()  # modules to import first

    def to_tune(self, trial: Trial) -> dict[str, Any]:
        """As plain values for Tune's config."""
        return {"trial": trial.to_json(), **asdict(self), "plugins": list(self.plugins)}

    @classmethod
    def from_tune(cls, config: dict[str, Any]) -> "TrialConfig":
        """The inverse of :meth:`to_tune`."""
        resources = Resources(**config["resources"])
        return cls(resources, config["storage"], tuple(config["plugins"]))


def encode_result(report: Report, history: Sequence[Report] = ()) -> dict[str, str]:
    """A report for Tune, which would flatten a dict and mix its own keys with ours."""
    result = {"report": json.dumps(report.to_dict())}
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
    have the same calls."""

    def __init__(
        self, session: Any, rank: int, world_size: int, gpus: bool, attempt: str = ""
    ) -> None:
        self.session, self.rank, self.world_size = session, rank, world_size
        self.device = _find_device(gpus)
        self._board = BoardWriter(attempt) if attempt and rank == 0 else None
        self._resume_folder: tempfile.TemporaryDirectory[str] | None = None

    def resume_from(self) -> Path | None:
        """The checkpoint that Ray has for this trial, copied here."""
        checkpoint = self.session.get_checkpoint()
        if checkpoint is None:
            return None
        self._resume_folder = tempfile.TemporaryDirectory(prefix="bermo-resume-")
        return Path(checkpoint.to_directory(self._resume_folder.name))

    def progress(self, share: float) -> None:
        """Rank 0 tells the board."""
        if self._board is not None:
            self._board.tell(share)

    def report(
        self,
        report: Report,
        save: Callable[[Path], None] | None,
        history: Sequence[Report] = (),
    ) -> None:
        """Passes the report on; rank 0 saves the checkpoint."""
        result = encode_result(report, history)
        if save is None or self.rank != 0:
            self.session.report(result)
            return
        with tempfile.TemporaryDirectory(prefix="bermo-checkpoint-") as folder:
            save(Path(folder))
            checkpoint = self.session.Checkpoint.from_directory(folder)
            self.session.report(result, checkpoint=checkpoint)


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
            train_in_process(config["trial"], settings)
        else:
            train_in_parallel(config["trial"], settings)
    except Exception as error:
        failed = Report(
            status=Status.FAILED, reason=_one_line(error), traceback=traceback.format_exc()
        )
        tune.report(encode_result(failed))


def _one_line(error: Exception) -> str:
    """The error's own first line or, of several workers, the last of what broke them."""
    failures = [str(e).strip() for e in getattr(error, "worker_failures", {}).values()]
    if failures and failures[0]:
        return failures[0].splitlines()[-1]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def train_in_process(trial_json: str, settings: TrialConfig) -> None:
    """One worker: the loop runs in the Tune trial's own process."""
    import torch
    from ray import tune

    from bermo_ray.training.loop import train

    torch.set_num_threads(settings.resources.cpus_per_worker)
    attempt = tune.get_context().get_trial_id()
    train(Trial.from_json(trial_json), RayReporter(tune, 0, 1, settings.resources.gpus, attempt))


def train_in_parallel(trial_json: str, settings: TrialConfig) -> None:
    """Several workers: Ray Train's TorchTrainer; gloo on CPUs, NCCL on GPUs.

    The inner run has the trial's name in Tune, so that a resumed trial finds its checkpoints.
    """
    import ray.train
    from ray import tune
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    from bermo_ray.ray_backend.process_group import make_torch_config

    resources, attempt = settings.resources, tune.get_context().get_trial_id()
    per_worker: dict[str, float] = {"CPU": resources.cpus_per_worker}
    TorchTrainer(
        _train_worker,
        train_loop_config=settings.to_tune(Trial.from_json(trial_json)) | {"attempt": attempt},
        torch_config=make_torch_config("nccl" if resources.gpus else "gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=resources.workers,
            use_gpu=resources.gpus,
            resources_per_worker=per_worker | ({"GPU": 1} if resources.gpus else {}),
        ),
        run_config=ray.train.RunConfig(
            name=f"train-{attempt}",
            storage_path=settings.storage,
            callbacks=[TuneReportCallback()],
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
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
    gpus = settings.resources.gpus
    reporter = RayReporter(ray.train, rank, world_size, gpus, config["attempt"])
    train(Trial.from_json(config["trial"]), reporter)
