"""What a trial will need: bytes of its checkpoints, steps, rows. No weights are loaded for it.

A checkpoint (:mod:`bermo_ray.training.checkpoint`) is nearly all numbers, 4 bytes each: the weights
and a score for every masked weight; while the trial runs, also AdamW's two moments of everything
that is trained. How many these are is read off the model's shapes.
"""

import json
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.models.assembly import AssembledModel, assemble
from bermo_ray.models.stock import build_empty_stock
from bermo_ray.tasks.registry import resolve_task
from bermo_ray.tasks.sources import MissingPartError
from bermo_ray.tasks.task import Task
from bermo_ray.training.batches import evaluation_steps, steps_per_epoch
from bermo_ray.training.model import build_pruner, freeze_encoder, starting_depth
from bermo_ray.training.row_counts import row_numbers
from bermo_ray.trial import Data, Trial

# What files hold besides numbers. It shows in encoders of some kB alone.
_MOMENT_HEADER_BYTES = 800  # of torch.save, for the three tensors that AdamW has of a parameter
_REPORT_BYTES = 1100  # in progress.json
_MATRIX_BYTES = 85  # in progress.json, for how much is kept of one masked matrix
_PREDICTIONS_BYTES, _PREDICTION_BYTES = 1600, 3  # of the file, and of one row in it


@dataclass(frozen=True)
class TrialNeeds:
    """What one trial needs.

    Attributes:
        finished_bytes: Of its checkpoint once it has ended.
        running_bytes: Of one checkpoint while it runs; at most, if its layers go one by one.
        steps: Of the optimiser.
        evaluations: Reports of what it reaches on dev.
        trained_rows: Rows of all steps together.
        evaluated_rows: Rows of all evaluations together, the test split's included.
    """

    finished_bytes: int
    running_bytes: int
    steps: int
    evaluations: int
    trained_rows: int
    evaluated_rows: int


def estimate_needs(trials: Iterable[Trial], workers: int = 1) -> list[TrialNeeds]:
    """What each of these trials will need; what several of them share is looked at once.

    Args:
        trials: Trials that :func:`~bermo_ray.training.check.check_trials` finds nothing wrong with.
        workers: Of each trial.

    Raises:
        UserError: an encoder or data that is not there, or a model that can't be built without its
            weights.
    """
    estimator = _Estimator(workers)
    return [estimator.estimate(trial) for trial in trials]


@dataclass(frozen=True)
class _Rows:
    """How many encoded rows a trial takes."""

    train: int
    dev: int
    final: int  # that are evaluated at the end alone: test and extra dev sets


@dataclass(frozen=True)
class _Bytes:
    """Of the files of a checkpoint."""

    weights: int
    scores: int
    optimizer: int
    matrices: int  # that are masked: a number, not bytes


class _Estimator:
    """Estimates one trial after the other."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._tasks: dict[Data, Task] = {}
        self._rows: dict[tuple[Data, str], _Rows] = {}  # by data and backbone
        self._bytes: dict[Hashable, _Bytes] = {}  # by what decides them

    def estimate(self, trial: Trial) -> TrialNeeds:
        rows = self._count_rows(trial)
        per_epoch = steps_per_epoch(rows.train, trial.batch_size, self.workers)
        evaluations = len(evaluation_steps(trial, per_epoch))
        progress = len(json.dumps(json.loads(trial.to_json()), indent=1))
        progress += evaluations * _REPORT_BYTES
        running, finished = (self._measure(trial, at_the_end) for at_the_end in (False, True))
        keeps_best = trial.final_checkpoint != "last"  # a copy of it, which is evaluated once more
        best = running.weights + running.scores if keeps_best else 0
        predictions = _PREDICTIONS_BYTES + rows.dev * _PREDICTION_BYTES
        predictions += finished.matrices * _MATRIX_BYTES
        return TrialNeeds(
            finished_bytes=finished.weights + progress + predictions,
            running_bytes=running.weights + running.scores + running.optimizer + best + progress,
            steps=trial.epochs * per_epoch,
            evaluations=evaluations,
            trained_rows=trial.epochs * rows.train,
            evaluated_rows=(evaluations + keeps_best) * rows.dev + rows.final,
        )

    def _count_rows(self, trial: Trial) -> _Rows:
        key = (trial.data, trial.backbone)
        if key not in self._rows:
            self._rows[key] = _count_rows(trial, self._resolve_task(trial.data))
        return self._rows[key]

    def _resolve_task(self, data: Data) -> Task:
        if data not in self._tasks:
            self._tasks[data] = resolve_task(data)
        return self._tasks[data]

    def _measure(self, trial: Trial, at_the_end: bool) -> _Bytes:
        task, drop = self._resolve_task(trial.data), trial.layer_drop
        pruning = trial.pruning and (trial.pruning.method, trial.pruning.name_pattern)
        changes = drop is not None and drop.epochs_per_layer is not None  # as it is trained
        key = (
            trial.backbone, task.head, len(task.labels), trial.fusion, drop, trial.warm_start,
            pruning, trial.mode, trial.embeddings_frozen, changes and at_the_end,
        )  # fmt: skip
        if key not in self._bytes:
            self._bytes[key] = _measure_checkpoint(trial, task, at_the_end)
        return self._bytes[key]


def _count_rows(trial: Trial, task: Task) -> _Rows:
    train, dev = (len(row_numbers(trial, task, split)) for split in ("train", "dev"))
    final = 0
    for part in task.available_dev_sets(trial.data):
        count = task.read_rows(trial.data, part).num_rows
        final += len(task.choose_rows(trial.data, "dev", trial.seed, count))
    if task.test is not None:
        with suppress(MissingPartError):
            final += len(row_numbers(trial, task, "test"))
    return _Rows(train, dev, final)


def _measure_checkpoint(trial: Trial, task: Task, at_the_end: bool) -> _Bytes:
    """The checkpoint of a trial before its first step, or when it has ended."""
    try:
        with torch.device("meta"):
            model = build_empty_model(trial, task, at_the_end)
            pruner = build_pruner(trial.pruning, model, total=1, warmup=0)
    except (NotImplementedError, RuntimeError) as error:  # a plug-in that computes as it is built
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        problem = f"fusion {trial.fusion.name!r} can't be built without weights: {why}"
        raise UserError(problem) from error
    trained = [p for p in model.network.parameters() if p.requires_grad]
    trained += pruner.scores() if pruner else []
    return _Bytes(
        weights=_file_bytes(_saved_tensors(model.network)),
        scores=_file_bytes(pruner.state_dict()) if pruner else 0,
        optimizer=sum(2 * _tensor_bytes(p) + _MOMENT_HEADER_BYTES for p in trained),
        matrices=len(pruner.matrices) if pruner else 0,
    )


def build_empty_model(trial: Trial, task: Task, at_the_end: bool = False) -> AssembledModel:
    """The trial's model without its numbers, as training starts from it or, ``at_the_end``, as it
    leaves it; what is frozen is frozen. As many layers are gone as the trial drops, not always the
    same ones: all of them have the same size. Layers that go by a threshold are still there.

    Raises:
        UserError: Layers, fusion or backbone are not what the trial says.
    """
    model = assemble(build_empty_stock(trial.backbone, task), trial.fusion)
    count = len(model.layers_left) - starting_depth(trial)  # gone from what is started from
    drop = trial.layer_drop
    if drop is not None and (at_the_end or drop.epochs_per_layer is None):
        count += len(drop.dropped_layers or ()) or drop.count
    # A fusion must be left something to mix; ModernBERT must be left its first layer.
    mixed = set(trial.fusion.mixed_states or ())
    by_rank = sorted(model.layers_left, key=lambda layer: (layer in mixed, -layer))
    model.remove_layers(by_rank[:count])
    if trial.mode == "features":
        freeze_encoder(model.network.base_model)
    if trial.embeddings_frozen:
        backbone.embedding_module(model.network).requires_grad_(False)
    return model


def _saved_tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    """What a checkpoint keeps of a network by name; what is shared is kept once."""
    tensors, seen = {}, set()
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            tensors[name] = tensor
            seen.add(id(tensor))
    return tensors


def _file_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    """Of a safetensors file: the numbers, and a header in JSON that says where they are."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + _tensor_bytes(tensor)
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    return 8 + len(json.dumps(header, separators=(",", ":"))) + end


def _tensor_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
