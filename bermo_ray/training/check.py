"""Everything that can be wrong with trials, found before any of them starts."""

from collections.abc import Iterable

import torch

from bermo_ray.errors import UserError, unknown
from bermo_ray.models import assembly, backbone
from bermo_ray.pruning.masks import METHODS
from bermo_ray.pruning.pruner import prunable
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.tasks import encoding, registry
from bermo_ray.tasks.task import Task
from bermo_ray.training import distillation, trained
from bermo_ray.training.contribution import contribution
from bermo_ray.training.loop import steps_per_epoch
from bermo_ray.trial import Data, Trial

SHORTEST_WINDOW = 24  # pieces
MANY_ROWS = 2000  # dev rows that a check does not put through the encoder


def check(trials: Iterable[Trial], workers: int = 1) -> None:
    """Checks names, data, layers and schedules of all trials; the data is read as a trial would.

    Raises:
        UserError: with every problem found, one line each.
    """
    rows: dict[Data, int] = {}
    models: dict[tuple[object, ...], list[str]] = {}
    found: dict[str, None] = {}  # in order, each once
    for trial in trials:
        problems = []
        if trial.pruning and trial.pruning.method not in METHODS:
            problems.append(unknown("pruning.method", trial.pruning.method, METHODS))
        if trial.batch_size < workers:
            problems.append(f"batch_size: got {trial.batch_size}, expected >= {workers} workers")
        try:
            task = registry.get(trial.data.task)
            if unreadable := task.problems(trial.data):
                raise UserError(*unreadable)
            task = registry.resolve(trial.data)
        except UserError as error:  # the model can still be looked at, with any task's head
            problems += error.problems
            task = registry.get(Data().task)
        key = (
            trial.backbone, trial.layer_drop, trial.fusion, trial.data.max_length, trial.start, task
        )  # fmt: skip
        if key not in models:
            models[key] = assembly.problems(trial, task, trained.layers_of(trial))
            models[key] += trained.problems(trial, task)
        problems += models[key]
        if trial.pruning and trial.pruning.only is not None and not models[key]:
            problems += _unmatched(trial, task)
        if trial.distillation:
            problems += distillation.problems(trial.distillation, task, trial.backbone)
        if task.head == "span" and trial.data.max_length < SHORTEST_WINDOW:
            problems.append(
                f"data.max_length: got {trial.data.max_length}, {task.name} needs "
                f">= {SHORTEST_WINDOW}: a question and some of its context"
            )
        elif task.name == trial.data.task and trial.data not in rows:
            rows[trial.data] = 0
            try:
                rows[trial.data] = _rows(trial, task)
            except UserError as error:
                problems += error.problems
        if trial.layer_drop and trial.layer_drop.threshold is not None and not problems:
            problems += _everything(trial, task)
        if rows.get(trial.data):
            problems += _schedule(trial, rows[trial.data], workers)
        found |= dict.fromkeys(problems)
    if found:
        raise UserError(*found)


def _rows(trial: Trial, task: Task) -> int:
    """How many encoded rows the trial trains on; both splits are read."""
    for part in (task.dev, *task.further_parts(trial.data)):
        task.rows(trial.data, part)
    if task.head == "span" or task.grouped:  # a row of the data is not a row of a batch
        tokenizer = backbone.tokenizer(trial.backbone)
        return len(encoding.load(task, trial.data, "train", trial.seed, tokenizer))
    return task.table(trial.data, "train", trial.seed).num_rows


def _unmatched(trial: Trial, task: Task) -> list[str]:
    if trial.layer_drop and trial.layer_drop.strategy == "contribution":
        trial = trial.replace(layer_drop=None)  # which layers go is not known yet
    try:
        assert trial.pruning is not None
        prunable(assembly.build(trial, task).stack.modules, trial.pruning.only)
    except UserError as error:
        return list(error.problems)
    return []


def _everything(trial: Trial, task: Task) -> list[str]:
    """A threshold that every layer exceeds. Of a large dev set the trial itself finds out."""
    tokenizer = backbone.tokenizer(trial.backbone)
    data = encoding.load(task, trial.data, "dev", trial.seed, tokenizer)
    if len(data) > MANY_ROWS:
        return []
    size, device = 4 * trial.batch_size, torch.device("cpu")
    try:
        trained.start(trial, task, lambda built: contribution(built, data, size, device))
    except UserError as error:
        return list(error.problems)
    return []


def _schedule(trial: Trial, rows: int, workers: int) -> list[str]:
    total = trial.epochs * steps_per_epoch(rows, trial.batch_size, workers)
    warmup = trial.warmup_steps(total)
    if warmup >= total:
        return [f"optimizer.warmup: {warmup} steps of warm-up, but only {total} steps in all"]
    if trial.pruning:
        problem = Schedule.of(trial.pruning, total, warmup).problem()
        return [problem] if problem else []
    return []
