"""How fast a trial would be on this machine, by a few real steps of it."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from bermo_ray.errors import UserError
from bermo_ray.training.batches import epoch_batches
from bermo_ray.training.evaluate import predict_rows
from bermo_ray.training.loop import take_step
from bermo_ray.training.malloc import keep_freed_memory
from bermo_ray.training.reporter import Resources, describe_hardware
from bermo_ray.training.setup import TrainingRun, set_up
from bermo_ray.trial import Trial

_MOST_STEPS, _MOST_SECONDS = 8, 5.0  # that are timed, whichever comes first
_WARMUP_SHARE = 8  # steps that are not timed have one of so many of a batch's rows


@dataclass(frozen=True)
class Speed:
    """Of a trial, all of its workers together."""

    rows_per_second: float  # of training
    evaluation_rows_per_second: float
    start_seconds: float  # to load data and model


def describe_hardware_here(resources: Resources) -> str | None:
    """What a trial would run on in this machine, in the words of its record; None where GPUs are
    asked for and there is none."""
    if resources.gpus and not torch.cuda.is_available():
        return None
    with _as_in_a_worker(resources.cpus_per_worker):
        return describe_hardware(_find_device(resources.gpus), resources.workers)


def measure_speed(trial: Trial, resources: Resources) -> Speed:
    """Times a handful of the trial's steps on a few of its rows, after some that warm up, and a
    forward without gradients; about 5 s of each at most. Of several workers one is run with its
    share of a batch, so that what they exchange is left out. A teacher's loss is left out too.

    Raises:
        UserError: GPUs are asked for, and there is none here, or its memory is too small; or as
            :func:`~bermo_ray.training.setup.set_up`.
    """
    if resources.gpus and not torch.cuda.is_available():
        raise UserError("gpus: there is none here to measure a trial's speed on")
    try:
        return _measure_speed(trial, resources)
    except torch.OutOfMemoryError as error:
        raise UserError("batch_size: a step of a trial does not fit the GPU's memory") from error


def _measure_speed(trial: Trial, resources: Resources) -> Speed:
    with _as_in_a_worker(resources.cpus_per_worker):
        keep_freed_memory()
        short, device = _shorten(trial, resources.workers), _find_device(resources.gpus)
        set_up(short, 1, device)  # encodes the rows, once for all trials of a node
        begun = time.perf_counter()
        run = set_up(short, 1, device)
        start_seconds = time.perf_counter() - begun
        run.wrap_network()
        run.start_training()
        training, size = _time_steps(run)
        evaluation = _time_evaluation(run, 4 * size)
    return Speed(resources.workers * training, resources.workers * evaluation, start_seconds)


def _find_device(gpus: bool) -> torch.device:
    return torch.device("cuda", 0) if gpus else torch.device("cpu")


@contextmanager
def _as_in_a_worker(threads: int) -> Iterator[None]:
    """Within: as many threads of torch as a worker has. Its random numbers are put back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


def _shorten(trial: Trial, workers: int) -> Trial:
    """The trial with one worker's share of a batch and rows for a handful of steps; it needs no
    other trial, and no layers are chosen by how these few rows pass through them."""
    size = max(1, trial.batch_size // workers)
    drop = trial.layer_drop
    return trial.replace(
        {"optimizer.warmup": 0},  # as many steps as a long run warms up in are not there
        data={"train_rows": (_MOST_STEPS + 1) * size, "dev_rows": 4 * size, "shots": None},
        batch_size=size,
        layer_drop=None if drop is None or drop.threshold is not None else drop,
        warm_start=None,
        distillation=None,
    )


def _time_steps(run: TrainingRun) -> tuple[float, int]:
    """Rows per second of training, and how many rows of a batch were taken: all of them, unless one
    step on them would take too long."""
    batches = epoch_batches(run.data["train"], run.trial, 0)
    size = max(len(batch) for batch in batches)
    # In the middle of a run masks are neither all open nor at rest.
    step, few = run.total_steps // 2, max(1, size // _WARMUP_SHARE)
    take_step(run, step, batches[0][:few])  # the first one also makes what others find
    begun = _now(run)
    take_step(run, step, batches[0][:few])
    if (_now(run) - begun) * size / few > _MOST_SECONDS:
        size = few
    begun, rows = _now(run), 0
    for batch in itertools.islice(itertools.cycle(batches), 1, 1 + _MOST_STEPS):
        take_step(run, step, batch[:size])
        rows += len(batch[:size])
        if _now(run) - begun > _MOST_SECONDS:
            break
    return rows / (_now(run) - begun), size


def _time_evaluation(run: TrainingRun, count: int) -> float:
    """Rows of dev per second, measured on so many of them, short and long ones alike."""
    by_length = run.data["dev"].rows_by_length
    count = min(count, len(by_length))
    rows = by_length[np.linspace(0, len(by_length) - 1, count).astype(int)]
    with run.pruner.frozen() if run.pruner else nullcontext():
        begun = _now(run)
        with run.precision.forward():
            predict_rows(run.network, run.data["dev"], rows, run.evaluation_batch_size, run.device)
        return count / (_now(run) - begun)


def _now(run: TrainingRun) -> float:
    """The time once the device has done what it was given."""
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter()
