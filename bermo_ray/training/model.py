"""The model of a trial: as training starts from it, and as a checkpoint keeps it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fine_tuned, fusion, layer_drop, layer_strategies
from bermo_ray.models.assembly import AssembledModel, assemble
from bermo_ray.models.fine_tuned import load_fine_tuned, match_labels, reorder_classes
from bermo_ray.models.stock import load_stock
from bermo_ray.pruning.counting import ParameterCount, count_parameters
from bermo_ray.pruning.pruner import KeptWeights, Pruner, prunable_matrices
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.record import Report, Status
from bermo_ray.tasks.registry import select_task
from bermo_ray.tasks.task import Task
from bermo_ray.training import checkpoint
from bermo_ray.training.checkpoint import Progress
from bermo_ray.trial import Trial


def build_model(
    trial: Trial,
    task: Task,
    score_layers: layer_drop.ScoreLayers | None = None,
    dropping_order: list[int] | None = None,
) -> AssembledModel:
    """The model that training starts from, initialised by the trial's seed alone.

    It is the backbone's or, with ``warm_start``, an earlier trial's with its head, its fusion and
    its masks folded in, or a fine-tuned stock model with its head. Layers that are dropped at once
    are gone, what is frozen is frozen.

    Args:
        trial: What is trained.
        task: Its task, with labels.
        score_layers: Scores the layers for strategy ``contribution``.
        dropping_order: Of a checkpoint: which layers are dropped, without looking again.

    Raises:
        UserError: Layers, fusion or backbone are not what the trial says.
    """
    torch.manual_seed(trial.seed)
    if trial.warm_start is None:
        model = assemble(load_stock(trial.backbone, task), trial.fusion)
    else:
        model = _load_start(Path(trial.warm_start), trial, task)
        model.network.train()
    model.dropping_order = []
    if trial.layer_drop is not None:
        if dropping_order is None:
            dropping_order = layer_drop.order_layers(model, trial.layer_drop, score_layers)
        if problem := layer_drop.find_problem(model.stack.base.config, dropping_order):
            raise UserError(problem)
        model.dropping_order = dropping_order
        model.remove_layers(layer_strategies.layers_due(trial.layer_drop, dropping_order, 0))
    if trial.mode == "features":
        freeze_encoder(model.network.base_model)
    return model


def _load_start(folder: Path, trial: Trial, task: Task) -> AssembledModel:
    """The model in a folder, its classes in the task's order; a stock one gets the fusion."""
    if not is_checkpoint(folder):
        return assemble(load_fine_tuned(folder, task), trial.fusion)
    trained = load_trained(folder)
    reorder_classes(trained.model.network, match_labels(trained.task.labels, task.labels))
    return trained.model


def load_network(folder: Path, task: Task) -> Any:
    """A fine-tuned model of the task, to be asked: an earlier trial's with its fusion and masks, or
    a stock one; its classes are in the task's order."""
    if not is_checkpoint(folder):
        return load_fine_tuned(folder, task)
    trained = load_trained(folder)
    reorder_classes(trained.model.network, match_labels(trained.task.labels, task.labels))
    return trained.model.network


def freeze_encoder(base: Any) -> None:
    """Freezes all but the pooler, which belongs to the head: most checkpoints have it untrained."""
    pooler = getattr(base, "pooler", None)
    base.requires_grad_(False)
    if pooler is not None:
        pooler.requires_grad_(True)


def build_pruner(
    settings: spec.Pruning | None, model: AssembledModel, total: int, warmup: int
) -> Pruner | None:
    """The model's masks in a run of ``total`` steps, of which ``warmup`` warm up."""
    if settings is None:
        return None
    pruner = Pruner(settings, Schedule.from_settings(settings, total, warmup))
    pruner.attach(model.stack.modules)
    return pruner


@dataclass(frozen=True)
class TrainedModel:
    """A model in evaluation mode with its masks folded in, and the last report of its training."""

    trial: Trial
    task: Task
    model: AssembledModel
    report: Report
    count: ParameterCount
    masked_names: tuple[str, ...]  # of the masked matrices, in the layers


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one of our checkpoints, rather than a stock one."""
    return (folder / checkpoint.PROGRESS_FILE).is_file()


def read_trial(folder: Path) -> Trial:
    """Which trial a checkpoint is of."""
    return Trial.from_dict(checkpoint.read_content(folder)["trial"])


def read_task(folder: Path) -> Task:
    """Its task, with the classes that it was trained on: its data need not be there any more."""
    content = checkpoint.read_content(folder)
    task = select_task(read_trial(folder).data)
    return replace(task, labels=tuple(content["labels"]))


def load_trained(folder: Path) -> TrainedModel:
    """The model of a checkpoint as its last evaluation saw it; nothing of it is frozen.

    Raises:
        UserError: No checkpoint there, one of a trial that has not ended, or weights that are not
            finite.
    """
    if not is_checkpoint(folder):
        raise UserError(f"no checkpoint in {folder} (no {checkpoint.PROGRESS_FILE})")
    trial, task, progress = read_trial(folder), read_task(folder), checkpoint.read_progress(folder)
    if not progress.ended:
        raise UserError(f"the trial in {folder} has not ended: step {progress.step}")
    report = progress.history[-1]
    model = _restore(folder, trial, task, progress)
    kept = [KeptWeights(*entry) for entry in report.kept_by_matrix]
    count = count_parameters(
        model.network, model.stack.modules, kept or None, model.undropped_parameters
    )
    masked_names = tuple(matrix.name for matrix in kept)
    if not all(bool(torch.isfinite(p).all()) for p in model.network.parameters()):
        raise UserError(f"the weights in {folder} are not finite: the trial diverged")
    model.network.eval()
    return TrainedModel(trial, task, model, report, count, masked_names)


def _restore(folder: Path, trial: Trial, task: Task, progress: Progress) -> AssembledModel:
    """The model with the weights of a run that has ended, which hold its masks."""
    unfrozen = trial.replace(mode="finetune")
    model = build_model(unfrozen, task, dropping_order=progress.dropping_order)
    model.remove_layers(progress.history[-1].dropped_layers)
    load_model(model.network, str(folder / checkpoint.WEIGHTS_FILE))
    with torch.no_grad():
        for weight in prunable_matrices(model.stack.modules).values():
            weight.add_(0.0)  # makes −0, what a closed gate leaves of a negative weight, a plain 0
    return model


def starting_depth(trial: Trial) -> int:
    """How many layers the model has that training starts from.

    Raises:
        UserError: There is no such encoder.
    """
    return _warm_start_depth(trial) or backbone.layer_count(trial.backbone)


def _warm_start_depth(trial: Trial) -> int | None:
    """How many layers the model has that is started from; None without one, or where it is a stock
    one, which has as many as the backbone."""
    if trial.warm_start is None or not is_checkpoint(Path(trial.warm_start)):
        return None
    return checkpoint.read_progress(Path(trial.warm_start)).history[-1].layers_left


def find_problems(trial: Trial, task: Task) -> list[str]:
    """What keeps the trial's model from being built, a line each; the weights are loaded once."""
    try:
        config = backbone.load_config(trial.backbone)
        backbone.load_tokenizer(trial.backbone)
        depth = backbone.find_stack(load_stock(trial.backbone, task)).depth
    except UserError as error:
        return [*error.problems, *_find_warm_start_problems(trial, task)]
    return [
        *_find_length_problems(trial, config),
        *_find_layer_problems(trial, config, depth),
        *fusion.find_problems(trial.fusion, depth),
        *_find_warm_start_problems(trial, task),
    ]


def _find_length_problems(trial: Trial, config: Any) -> list[str]:
    length, positions = trial.data.max_length, getattr(config, "max_position_embeddings", None) or 0
    if config.model_type in ("roberta", "xlm-roberta"):
        positions -= config.pad_token_id + 1  # it counts positions from behind the padding's
    if not 0 < positions < length:
        return []
    return [f"data.max_length: got {length}, {trial.backbone} has {positions} positions"]


def _find_layer_problems(trial: Trial, config: Any, depth: int) -> list[str]:
    settings, warm_start_depth = trial.layer_drop, _warm_start_depth(trial)
    if settings is None:
        return []
    try:
        layer_strategies.check_layer_drop(settings, warm_start_depth or depth)
        if warm_start_depth is not None or settings.strategy in layer_strategies.SCORED:
            return []  # which layers are dropped is known once the model is there
        dropped = layer_strategies.dropping_order(settings, depth)
    except UserError as error:
        return list(error.problems)
    problem, mixed = layer_drop.find_problem(config, dropped), trial.fusion.mixed_states
    problems = [problem] if problem else []
    if mixed is not None and set(mixed) <= set(dropped):
        problems.append(f"fusion.mixed_states: all of {list(mixed)} go with the layers dropped")
    return problems


def _find_warm_start_problems(trial: Trial, task: Task) -> list[str]:
    if trial.warm_start is None:
        return []
    folder = Path(trial.warm_start)
    if not is_checkpoint(folder):
        return [f"warm_start: {p}" for p in _find_stock_start_problems(folder, trial, task)]
    earlier, earlier_task = read_trial(folder), read_task(folder)
    status = checkpoint.read_progress(folder).history[-1].status
    problems = []
    if status is not Status.COMPLETED:
        problems.append(f"warm_start: the trial in {trial.warm_start} is {status}, not completed")
    for name, before, now in (
        ("backbone", earlier.backbone, trial.backbone),
        ("fusion", earlier.fusion, trial.fusion),
        ("head", earlier_task.head, task.head),
    ):
        if before != now:
            problems.append(f"warm_start: its {name} is {before}, the trial's {now}")
    if earlier_task.head == task.head:
        problems += find_label_problems("warm_start", earlier_task.labels, task)
    return problems


def find_label_problems(field: str, labels: tuple[str, ...], task: Task) -> list[str]:
    """Which of a model's labels and the task's differ; ``field`` is what named the model."""
    try:
        match_labels(labels, task.labels)
    except UserError as error:
        return [f"{field}: {problem}" for problem in error.problems]
    return []


def _find_stock_start_problems(folder: Path, trial: Trial, task: Task) -> list[str]:
    """Of a stock folder: its head and labels, and whether the trial's encoder is one like it."""
    if not fine_tuned.is_stock_folder(folder):
        return [f"no checkpoint in {str(folder)!r}: neither {checkpoint.PROGRESS_FILE} of a trial "
                "nor a config.json"]  # fmt: skip
    if problems := fine_tuned.find_problems(folder, task):
        return problems
    names = ("model_type", "num_hidden_layers", "hidden_size", "vocab_size")
    configs = [backbone.load_config(name) for name in (str(folder), trial.backbone)]
    values = [{name: getattr(config, name) for name in names} for config in configs]
    return [
        f"its {name} is {values[0][name]}, that of {trial.backbone} {values[1][name]}; give the "
        "folder as `backbone`"
        for name in names
        if values[0][name] != values[1][name]
    ][:1]
