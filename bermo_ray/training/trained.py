"""A finished trial's model, put together again from its checkpoint."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bermo_ray.errors import UserError
from bermo_ray.models import assembly
from bermo_ray.pruning.pruner import Count, Pruner, count
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.tasks import registry
from bermo_ray.tasks.task import Task
from bermo_ray.training import checkpoint
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode with its masks folded in, and the last report of its training."""

    trial: Trial
    task: Task
    built: assembly.Assembled
    report: dict[str, Any]
    left: Count
    matrices: tuple[str, ...]  # names of the masked ones, in the layers


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one of our checkpoints, rather than a stock one."""
    return (folder / checkpoint.PROGRESS).is_file()


def trial_of(folder: Path) -> Trial:
    """Which trial a checkpoint is of."""
    return Trial.from_dict(json.loads((folder / checkpoint.PROGRESS).read_text())["trial"])


def task_of(folder: Path) -> Task:
    """Its task, with the classes that it was trained on: its data need not be there any more."""
    content = json.loads((folder / checkpoint.PROGRESS).read_text())
    task = registry.get(content["trial"]["data"]["task"])
    return replace(task, labels=tuple(content.get("labels", task.labels)))


def load(folder: Path) -> Trained:
    """The model of a checkpoint as its last evaluation saw it.

    Raises:
        UserError: no checkpoint there, or one of a trial that has not ended.
    """
    if not is_checkpoint(folder):
        raise UserError(f"no checkpoint in {folder} (no {checkpoint.PROGRESS})")
    trial, progress = trial_of(folder), checkpoint.progress(folder)
    if not progress.history[-1]["final"]:
        raise UserError(f"the trial in {folder} has not ended: step {progress.step}")
    task = task_of(folder)
    built = assembly.build(trial, task)
    pruner = None
    if trial.pruning:
        warmup = trial.warmup_steps(progress.total)
        pruner = Pruner(trial.pruning, Schedule.of(trial.pruning, progress.total, warmup))
        pruner.attach(built.stack.modules)
        pruner.now = progress.step
    checkpoint.load_weights(folder, built.model, pruner)
    left = count(built.model, built.stack.modules, pruner)
    names = tuple(matrix.name for matrix in pruner.matrices) if pruner else ()
    if pruner:
        pruner.fold()
    if not all(bool(torch.isfinite(p).all()) for p in built.model.parameters()):
        raise UserError(f"the weights in {folder} are not finite: the trial diverged")
    built.model.eval()
    return Trained(trial, task, built, progress.history[-1], left, names)
