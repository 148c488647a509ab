"""What a study will need before it is run: room for its checkpoints, and time."""

import os
import shutil
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import pyarrow as pa
import torch

from bermo_ray.errors import UserError
from bermo_ray.results.recorded_speeds import RecordedSpeed, find_recorded_speed
from bermo_ray.training.needs import TrialNeeds, estimate_needs
from bermo_ray.training.reporter import Resources
from bermo_ray.training.speed import Speed, describe_hardware_here, measure_speed
from bermo_ray.trial import Trial

# A step is a forward and a backward, which takes twice as long; an evaluation is a forward.
_FORWARDS_PER_STEP = 3


@dataclass(frozen=True)
class Workload:
    """The trials that a study has to run.

    Args:
        trials: Those that stand for all. Where they are not all of them, a plan that prunes lists
            its dense trials and searches among the pruned ones.
        most_trials: How many are run at most.
        resources: What one trial takes.
        concurrent: Trials at once.
    """

    trials: tuple[Trial, ...]
    most_trials: int
    resources: Resources
    concurrent: int

    @cached_property
    def needs(self) -> list[TrialNeeds]:
        """Of each of the trials.

        Raises:
            UserError: as :func:`~bermo_ray.training.needs.estimate_needs`.
        """
        return estimate_needs(self.trials, self.resources.workers)

    @property
    def are_listed(self) -> bool:
        """Whether the trials are all that are run."""
        return len(self.trials) == self.most_trials

    def counts(self) -> list[float]:
        """For how many of the study's trials each one stands."""
        pruned = sum(trial.pruning is not None for trial in self.trials)
        dense = len(self.trials) - pruned
        if self.are_listed or pruned == 0 or dense > self.most_trials:
            return [self.most_trials / len(self.trials)] * len(self.trials)
        searched = (self.most_trials - dense) / pruned
        return [searched if trial.pruning else 1.0 for trial in self.trials]


def count_concurrent(
    resources: Resources, asked: int | None, backend: Literal["ray", "process"]
) -> int:
    """How many trials run at once: as many as asked for, else as fit this machine. A cluster that
    is joined may have room for more."""
    if backend == "process":
        return 1
    if asked is not None:
        return asked
    per_trial = resources.workers * resources.cpus_per_worker
    fitting = (os.cpu_count() or 1) // per_trial
    if resources.gpus:
        fitting = resources.fitting(torch.cuda.device_count())
    return max(1, fitting)


@dataclass(frozen=True)
class DiskForecast:
    """Room that a study's checkpoints take at most, in bytes."""

    trials: int
    trial_bytes: int  # of the largest checkpoint of a trial that has ended
    are_alike: bool  # whether all of these are as large
    running: int  # trials at once
    most_bytes: int
    free_bytes: int | None  # None: they go to a bucket

    @property
    def is_enough_free(self) -> bool:
        """Whether they fit."""
        return self.free_bytes is None or self.most_bytes <= self.free_bytes


def forecast_disk(work: Workload, checkpoints: str) -> DiskForecast:
    """All trials ended, and as many running as run at once: each has two checkpoints for a moment,
    because the new one is complete before the old one goes.

    Args:
        work: What is to be run.
        checkpoints: Folder or URI where they go.

    Raises:
        UserError: as :attr:`Workload.needs`.
    """
    finished = [needs.finished_bytes for needs in work.needs]
    largest, running = max(finished), min(work.concurrent, work.most_trials)
    ended = sum(finished) if work.are_listed else work.most_trials * largest
    return DiskForecast(
        work.most_trials,
        largest,
        max(finished) - min(finished) < 0.05 * largest,
        running,
        ended + running * 2 * max(needs.running_bytes for needs in work.needs),
        _free_bytes(checkpoints),
    )


def _free_bytes(folder: str) -> int | None:
    """Free where a folder is or will be; None of a bucket."""
    if "://" in folder:
        return None
    path = Path(folder).absolute()
    nearest = next(p for p in (path, *path.parents) if p.exists())
    return shutil.disk_usage(nearest).free


@dataclass(frozen=True)
class TimeForecast:
    """How long a study takes."""

    seconds: float  # from its start to its end
    worker_seconds: float  # of all workers together
    workers: int  # at once
    trials: int
    steps: tuple[int, int]  # of the trials: the fewest and the most
    rows_per_second: tuple[float, float]  # of the slowest and the fastest trial, all of its workers
    recorded: bool  # whether trials of the store say how fast some are
    measured: bool  # whether some were tried here


def forecast_time(work: Workload, records: pa.Table) -> TimeForecast:
    """Trials × steps × speed, and what evaluations and the start of a trial take. The speed is that
    of trials like it that are recorded, else of a few steps of one that is tried here: one for each
    encoder and mode, dense and pruned. What starting Ray takes is not counted.

    Args:
        work: What is to be run.
        records: Trials of the study's store.

    Raises:
        UserError: there is no way to tell, because GPUs are asked for and none is here; or as
            :attr:`Workload.needs`.
    """
    speeds = _find_speeds(work, records)
    seconds = [
        _trial_seconds(needs, speed) for needs, speed in zip(work.needs, speeds, strict=True)
    ]
    total = sum(count * each for count, each in zip(work.counts(), seconds, strict=True))
    running = min(work.concurrent, work.most_trials)
    steps = [needs.steps for needs in work.needs]
    rates = [speed.rows_per_second for speed in speeds]
    return TimeForecast(
        seconds=max(total / running, *seconds),
        worker_seconds=total * work.resources.workers,
        workers=running * work.resources.workers,
        trials=work.most_trials,
        steps=(min(steps), max(steps)),
        rows_per_second=(min(rates), max(rates)),
        recorded=any(isinstance(speed, RecordedSpeed) for speed in speeds),
        measured=any(isinstance(speed, Speed) for speed in speeds),
    )


def _find_speeds(work: Workload, records: pa.Table) -> list[Speed | RecordedSpeed]:
    """Of each trial."""
    resources, hardware = work.resources, describe_hardware_here(work.resources)
    known: dict[Hashable, RecordedSpeed | None] = {}
    tried: dict[Hashable, Speed] = {}
    speeds: list[Speed | RecordedSpeed] = []
    for trial in work.trials:
        kind = (trial.backbone, trial.mode, trial.pruning is None)
        key = (*kind, trial.data.task, trial.data.max_length, trial.batch_size)
        if key not in known:
            known[key] = find_recorded_speed(records, trial, resources.workers, hardware)
        if known[key] is None and kind not in tried:
            if hardware is None:
                raise UserError("no GPU here to measure on, and no trial like these is recorded")
            tried[kind] = measure_speed(trial, resources)
        speeds.append(known[key] or tried[kind])
    return speeds


def _trial_seconds(needs: TrialNeeds, speed: Speed | RecordedSpeed) -> float:
    training = needs.trained_rows / speed.rows_per_second
    if isinstance(speed, Speed):
        evaluations = needs.evaluated_rows / speed.evaluation_rows_per_second
        return speed.start_seconds + training + evaluations
    # Trials of fewer rows may have been evaluated in less time than these will be.
    forwards = needs.evaluated_rows / speed.rows_per_second / _FORWARDS_PER_STEP
    return training + max(speed.other_seconds, forwards)
