"""Which rows each step trains on, and after which steps is evaluated."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.trial import Trial

_WINDOW_BATCHES = 32  # that are sorted by length together


def steps_per_epoch(rows: int, batch_size: int, world_size: int = 1) -> int:
    """Steps of a pass over the rows; a last batch that can't give every worker a row is left
    out."""
    rest = rows % batch_size
    return rows // batch_size + (1 if rest >= world_size else 0)


def epoch_batches(
    data: EncodedRows, trial: Trial, epoch: int, world_size: int = 1
) -> list[np.ndarray]:
    """The epoch's batches of row indices, fixed by (seed, epoch): rows of like length together, in
    random order.

    Sorting within windows of 32 batches spares most padding and keeps batches random.
    """
    random = np.random.default_rng([trial.seed, epoch])
    order = random.permutation(len(data))
    lengths = data.lengths
    window = _WINDOW_BATCHES * trial.batch_size
    order = np.concatenate([
        part[np.argsort(lengths[part], kind="stable")]
        for part in np.split(order, range(window, len(order), window))
    ])  # fmt: skip
    batches = np.split(order, range(trial.batch_size, len(order), trial.batch_size))
    batches = [batch for batch in batches if len(batch) >= world_size]
    return [batches[i] for i in random.permutation(len(batches))]


def to_device(batch: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """The batch on a device. A GPU fetches it by itself out of memory that stays where it is, while
    this process goes on to the next one."""
    if device.type != "cuda":
        return {name: values.to(device) for name, values in batch.items()}
    return {
        name: values.pin_memory().to(device, non_blocking=True) for name, values in batch.items()
    }


def evaluation_steps(trial: Trial, per_epoch: int) -> set[int]:
    """Steps after which is evaluated: evenly spread over each epoch, its end among them."""
    parts = trial.evaluations_per_epoch
    return {
        epoch * per_epoch + math.ceil(per_epoch * part / parts)
        for epoch in range(trial.epochs)
        for part in range(1, parts + 1)
    }
