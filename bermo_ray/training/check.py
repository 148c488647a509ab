"""Everything that can be wrong with trials, found before any of them starts."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from bermo_ray.errors import UserError, unknown
from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.pruning.masks import METHODS
from bermo_ray.pruning.pruner import prunable_matrices
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import get_task, resolve_task, select_task
from bermo_ray.tasks.sources import MissingPartError
from bermo_ray.tasks.splits import split_halves
from bermo_ray.tasks.task import Task
from bermo_ray.training import distillation, model, precision
from bermo_ray.training.batches import steps_per_epoch
from bermo_ray.training.contribution import layer_similarity
from bermo_ray.training.row_counts import row_numbers
from bermo_ray.training.setup import find_redraw_problems
from bermo_ray.trial import Data, Trial

LEAST_VERIFICATION_ROWS = 10  # fewer could not tell a good choice from a bad one


def check_trials(
    trials: Iterable[Trial], workers: int = 1, chooses: bool = False, gpus: bool = False
) -> None:
    """Checks names, data, layers and schedules of all trials; the data is read as a trial would.

    Args:
        trials: What is to be run.
        workers: Of each trial.
        chooses: Whether their plan chooses among them, so that rows must be left to verify on.
        gpus: Whether each worker has one.

    Raises:
        UserError: With every problem, one line each.
    """
    checker = _Checker(workers, chooses, gpus)
    problems = dict.fromkeys(p for trial in trials for p in checker.find_problems(trial))
    if problems:
        raise UserError(*problems)


@dataclass(frozen=True)
class _RowCounts:
    """How many rows a trial takes."""

    train: int  # encoded ones
    dev: int  # that are predicted
    has_test: bool  # whether there is a test part with labels


class _Checker:
    """Checks one trial after the other; what several of them share is looked at once."""

    def __init__(self, workers: int, chooses: bool, gpus: bool) -> None:
        self.workers, self.chooses, self.gpus = workers, chooses, gpus
        self._model_problems: dict[tuple[object, ...], list[str]] = {}
        self._row_counts: dict[Data, _RowCounts | None] = {}  # None where they can't be read

    def find_problems(self, trial: Trial) -> list[str]:
        """What is wrong with the trial, a line each."""
        problems = self._find_setting_problems(trial)
        try:
            task = _find_task(trial.data)
        except UserError as error:  # the model can still be looked at, with any task's head
            problems += error.problems
            task = get_task(Data().task)
        problems += find_redraw_problems(trial, task)
        problems += self._find_model_problems(trial, task)
        if trial.distillation:
            problems += distillation.find_problems(trial.distillation, task, trial.backbone)
        problems += self._find_data_problems(trial, task)
        if trial.layer_drop and trial.layer_drop.threshold is not None and not problems:
            problems += _find_threshold_problems(trial, task)
        problems += self._find_verification_problems(trial)
        return problems + self._find_schedule_problems(trial)

    def _find_setting_problems(self, trial: Trial) -> list[str]:
        problems = []
        if trial.pruning and trial.pruning.method not in METHODS:
            problems.append(unknown("pruning.method", trial.pruning.method, METHODS))
        if trial.batch_size < self.workers:
            problems.append(
                f"batch_size: got {trial.batch_size}, expected >= {self.workers} workers"
            )
        method = METHODS.get(trial.pruning.method) if trial.pruning else None
        noisy = method is not None and method.noisy
        problems.append(precision.find_problem(trial.precision, self.gpus, self.workers, noisy))
        return [problem for problem in problems if problem]

    def _find_model_problems(self, trial: Trial, task: Task) -> list[str]:
        key = (
            trial.backbone, trial.layer_drop, trial.fusion, trial.data.max_length,
            trial.warm_start, task,
        )  # fmt: skip
        if key not in self._model_problems:
            self._model_problems[key] = model.find_problems(trial, task)
        problems = self._model_problems[key]
        if trial.pruning and trial.pruning.name_pattern is not None and not problems:
            return _find_pattern_problems(trial, task, trial.pruning.name_pattern)
        return problems

    def _find_data_problems(self, trial: Trial, task: Task) -> list[str]:
        length, least = trial.data.max_length, task.head.min_length
        if length < least:
            return [
                f"data.max_length: got {length}, {task.name} needs >= {least}: a question and some "
                "of its context"
            ]
        if task.name != trial.data.task or trial.data in self._row_counts:
            return []
        self._row_counts[trial.data] = None
        try:
            self._row_counts[trial.data] = _count_rows(trial, task)
        except UserError as error:
            return list(error.problems)
        return []

    def _find_verification_problems(self, trial: Trial) -> list[str]:
        """Too few rows that say how good a choice is, where something is chosen."""
        rows = self._row_counts.get(trial.data)
        chooses = self.chooses or trial.final_checkpoint != "last"
        if rows is None or rows.has_test or trial.data.whole_dev or not chooses:
            return []
        if trial.final_checkpoint == "best_loss":
            return [
                f"final_checkpoint: best_loss chooses on all of dev, and {trial.data.task} has no "
                "labelled test split to verify on; give best, or `whole_dev`"
            ]
        verifying = len(split_halves(rows.dev)[1])
        if verifying >= LEAST_VERIFICATION_ROWS:
            return []
        return [
            f"data.dev_rows: {rows.dev} dev rows leave {verifying} to verify {trial.data.task} on, "
            f"expected >= {LEAST_VERIFICATION_ROWS}; give more, or `whole_dev`"
        ]

    def _find_schedule_problems(self, trial: Trial) -> list[str]:
        rows = self._row_counts.get(trial.data)
        if rows is None:
            return []
        total = trial.epochs * steps_per_epoch(rows.train, trial.batch_size, self.workers)
        warmup = trial.warmup_steps(total)
        if warmup >= total:
            return [f"optimizer.warmup: {warmup} steps of warm-up, but only {total} steps in all"]
        if not trial.pruning:
            return []
        problem = Schedule.from_settings(trial.pruning, total, warmup).find_problem()
        return [problem] if problem else []


def _find_task(data: Data) -> Task:
    """The task with its labels; what keeps its data from being found is raised at once."""
    if problems := select_task(data).find_problems(data):
        raise UserError(*problems)
    return resolve_task(data)


def _count_rows(trial: Trial, task: Task) -> _RowCounts:
    """The rows that the trial takes; all splits are read, test where it is there."""
    dev = len(np.unique(row_numbers(trial, task, "dev")))
    for part in task.available_dev_sets(trial.data):
        task.read_rows(trial.data, part)
    has_test = False
    with suppress(MissingPartError):
        task.read_rows(trial.data, task.part_of("test"))
        has_test = True
    return _RowCounts(len(row_numbers(trial, task, "train")), dev, has_test)


def _find_pattern_problems(trial: Trial, task: Task, pattern: str) -> list[str]:
    """A name pattern that no matrix matches."""
    if trial.layer_drop and trial.layer_drop.strategy == "contribution":
        trial = trial.replace(layer_drop=None)  # which layers are dropped is not known yet
    try:
        prunable_matrices(model.build_model(trial, task).stack.modules, pattern)
    except UserError as error:
        return list(error.problems)
    return []


def _find_threshold_problems(trial: Trial, task: Task) -> list[str]:
    """A threshold that every layer exceeds."""
    tokenizer = load_tokenizer(trial.backbone)
    data = encode_split(task, trial.data, "train", trial.seed, tokenizer)
    score_layers = partial(
        layer_similarity, data=data, batch_size=4 * trial.batch_size, device=torch.device("cpu")
    )
    try:
        model.build_model(trial, task, score_layers)
    except UserError as error:
        return list(error.problems)
    return []
