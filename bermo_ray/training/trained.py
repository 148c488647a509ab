"""A finished trial's model, put together again from its checkpoint."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models import assembly, backbone
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
    built = start(trial, task, going=progress.going)
    pruner = None
    if trial.pruning:
        warmup = trial.warmup_steps(progress.total)
        pruner = Pruner(trial.pruning, Schedule.of(trial.pruning, progress.total, warmup))
        pruner.attach(built.stack.modules)
        pruner.now = progress.step
    shrink(built, pruner, progress.history[-1].get("dropped", built.going))
    checkpoint.load_weights(folder, built.model, pruner)
    left = count(built.model, built.stack.modules, pruner, built.whole)
    names = tuple(matrix.name for matrix in pruner.matrices) if pruner else ()
    if pruner:
        pruner.fold()
    if not all(bool(torch.isfinite(p).all()) for p in built.model.parameters()):
        raise UserError(f"the weights in {folder} are not finite: the trial diverged")
    built.model.eval()
    return Trained(trial, task, built, progress.history[-1], left, names)


def start(
    trial: Trial,
    task: Task,
    similarity: assembly.Similarity | None = None,
    going: list[int] | None = None,
) -> assembly.Assembled:
    """The model that training starts from: the backbone's, or with ``trial.start`` an earlier
    trial's with its head, its fusion and its masks folded in. Layers that go at once are gone."""
    if trial.start is None:
        return assembly.build(trial, task, similarity, going)
    torch.manual_seed(trial.seed)
    built = load(Path(trial.start)).built
    built.model.train()
    fresh = assembly.build(trial.replace(layer_drop=None, start=None), task)
    learns = dict(fresh.model.named_parameters())
    for name, parameter in built.model.named_parameters():  # not as the earlier trial's mode had it
        parameter.requires_grad_(learns[name].requires_grad if name in learns else True)
    assembly.adapt(built, trial, similarity, going)
    return built


def shrink(
    built: assembly.Assembled, pruner: Pruner | None, gone: Iterable[int]
) -> list[nn.Parameter]:
    """Takes layers out of model, fusion and masks; gives all parameters and scores that stay."""
    assembly.shrink(built, gone)
    if pruner:
        pruner.forget(built.stack.modules)
    return [*built.model.parameters(), *(pruner.scores() if pruner else [])]


def layers_of(trial: Trial) -> int | None:
    """How many layers the earlier trial left, where one is started from."""
    if trial.start is None or not is_checkpoint(Path(trial.start)):
        return None
    found = checkpoint.progress(Path(trial.start)).history[-1].get("layers")
    return None if found is None else int(found)


def depth_of(trial: Trial) -> int:
    """How many layers the model has that training starts from.

    Raises:
        UserError: there is no such encoder.
    """
    return layers_of(trial) or backbone.depth(trial.backbone)


def problems(trial: Trial, task: Task) -> list[str]:
    """What keeps the trial from starting where it says, a line each."""
    if trial.start is None:
        return []
    folder = Path(trial.start)
    if not is_checkpoint(folder):
        return [f"start: no checkpoint of a trial in {trial.start!r} (no {checkpoint.PROGRESS})"]
    before, status = trial_of(folder), checkpoint.progress(folder).history[-1]["status"]
    found = []
    if status != "completed":
        found.append(f"start: the trial in {trial.start} is {status}, not completed")
    for name, was, now in (
        ("backbone", before.backbone, trial.backbone),
        ("fusion", before.fusion, trial.fusion),
        ("labels", task_of(folder).labels, task.labels),
        ("head", task_of(folder).head, task.head),
    ):
        if was != now:
            found.append(f"start: its {name} is {was}, the trial's {now}")
    return found
