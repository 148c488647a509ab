"""Fine-tuned stock checkpoints with their own head, whose classes are put in a task's order."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bermo_ray.errors import UserError, listed
from bermo_ray.models import backbone
from bermo_ray.models.stock import load_stock
from bermo_ray.tasks.heads import REGRESSION
from bermo_ray.tasks.task import Task

_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers calls classes that were given no name


def is_stock_folder(folder: Path) -> bool:
    """Whether a folder is a checkpoint that ``from_pretrained`` loads."""
    return (folder / "config.json").is_file()


def match_labels(labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """For each label that is wanted, its index among ``labels``: by name, whatever the case, or by
    number where the labels have no names (``LABEL_0``, ``LABEL_1``, …).

    >>> match_labels(["POSITIVE", "NEGATIVE"], ["negative", "positive"])
    [1, 0]

    Raises:
        UserError: they are not the same labels; with those that differ.
    """
    if len(labels) == len(wanted) and all(map(_UNNAMED.fullmatch, labels)):
        return list(range(len(labels)))
    for fold in (str, str.casefold):
        index = {fold(label): number for number, label in enumerate(labels)}
        if len(index) == len(labels) == len(wanted) and all(fold(name) in index for name in wanted):
            return [index[fold(name)] for name in wanted]
    lacking = [name for name in wanted if name not in labels]
    extra = [label for label in labels if label not in wanted]
    differences = [
        f"{what} {listed(names[:8])}{', …' if len(names) > 8 else ''}"
        for what, names in (("the task alone has", lacking), ("it alone has", extra))
        if names
    ]
    raise UserError(f"its labels are not the task's: {'; '.join(differences)}")


def reorder_classes(network: Any, order: Sequence[int]) -> None:
    """Puts the classes that a network's head tells apart into another order.

    Args:
        network: A stock model with a head for classes.
        order: For each class, the number that it has had so far.
    """
    if list(order) == list(range(len(order))):
        return
    output = _output_layer(network, len(order))
    with torch.no_grad():
        output.weight.copy_(output.weight[list(order)])
        if output.bias is not None:
            output.bias.copy_(output.bias[list(order)])


def _output_layer(network: Any, count: int) -> nn.Linear:
    """The layer that gives the logits: the last one outside the encoder with that many outputs."""
    encoder = {id(module) for module in network.base_model.modules()}
    layers = [
        module
        for module in network.modules()
        if isinstance(module, nn.Linear) and id(module) not in encoder
    ]
    fitting = [layer for layer in layers if layer.out_features == count]
    if not fitting:
        raise UserError(f"{type(network).__name__}: no layer with {count} outputs in its head")
    return fitting[-1]


def load_fine_tuned(folder: Path, task: Task) -> Any:
    """A stock checkpoint with its trained head, its classes in the order of the task's labels.

    Raises:
        UserError: no such checkpoint, a head of another kind, or other labels.
    """
    order = _match_head(folder, task)
    network = load_stock(str(folder), task, needs_head=True)
    reorder_classes(network, order)
    return network


def find_problems(folder: Path, task: Task) -> list[str]:
    """What keeps a folder from being loaded as a model of the task, a line each."""
    try:
        load_fine_tuned(folder, task)
    except UserError as error:
        return list(error.problems)
    return []


def _match_head(folder: Path, task: Task) -> list[int]:
    """For each of the task's labels, its number in the folder's head.

    Raises:
        UserError: the head is of another kind, or has other labels.
    """
    import transformers

    if (folder / "fusion.json").is_file():
        raise UserError(f"{folder} was exported with a fusion; give the trial itself")
    if not is_stock_folder(folder):
        raise UserError(f"no checkpoint in {str(folder)!r} (no config.json)")
    config = backbone.load_config(str(folder))
    mapping = getattr(transformers, task.head.stock_class)._model_mapping
    if type(config) in mapping and config.architectures:
        wanted, architecture = mapping[type(config)].__name__, config.architectures[0]
        if architecture != wanted:
            raise UserError(f"{folder} is a {architecture}, but {task.name} needs a {wanted}")
    if task.head == REGRESSION and config.num_labels != 1:
        raise UserError(f"its head has {config.num_labels} outputs, but {task.name} is one number")
    if not task.labels:
        return []
    return match_labels([config.id2label[i] for i in range(config.num_labels)], task.labels)
