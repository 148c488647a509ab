"""Where a training loop runs, and whom it reports to; without Ray."""

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from bermo_ray.record import Report
from bermo_ray.training.checkpoint_folder import CheckpointFolder, SaveCheckpoint
from bermo_ray.trial import Trial


class Reporter(Protocol):
    """What a backend gives the loop: its place among the workers, and a way to report."""

    rank: int
    world_size: int
    device: torch.device

    def resume_from(self) -> Path | None:
        """The folder of the checkpoint to go on from, if any."""

    def progress(self, share: float) -> None:
        """Called by every worker after every step, with the share of all steps that is done."""

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        """Called by every worker at every evaluation.

        Args:
            report: What was measured.
            save: Writes the checkpoint that belongs to it; None where there is no new one.
            history: All reports up to this one, of a run that is taken up again.
        """


@dataclass(frozen=True)
class Resources:
    """Where a trial runs; none of it changes what is computed at a given number of workers."""

    workers: int = 1
    gpus: bool = False
    cpus_per_worker: int = 1  # and threads of torch: another number may change the last bits
    gpus_per_worker: float = 1.0  # with ``gpus``; below 1, several small trials share one

    def fitting(self, gpus: float) -> int:
        """How many trials have room on so many GPUs, by their GPUs alone."""
        return math.floor(gpus / (self.workers * self.gpus_per_worker) + 1e-9)


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
        if self.folder is None:
            return None
        folder = CheckpointFolder(self.folder)
        folder.settle()
        return folder.find()

    def progress(self, share: float) -> None:
        """Nobody watches."""

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        """Remembers the report; its checkpoint takes the place of the one before."""
        self.reports.append(report)
        if save and self.folder:
            CheckpointFolder(self.folder).write(save)


def run_locally(trial: Trial, folder: Path | None = None, threads: int = 1) -> list[Report]:
    """Trains in this process and returns all reports; goes on from a checkpoint in ``folder``."""
    from bermo_ray.training.loop import train  # the loop is written against this module

    torch.set_num_threads(threads)
    reporter = LocalReporter(folder)
    train(trial, reporter)
    return reporter.reports


def describe_hardware(device: torch.device, workers: int) -> str:
    """What a trial runs on, for its record."""
    if device.type == "cuda":
        return f"{workers} × {torch.cuda.get_device_name(device)}"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{workers} × {torch.get_num_threads()} thread(s) of {name}"
