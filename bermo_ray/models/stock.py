"""Stock `transformers` models with a task's head, so that what is trained loads anywhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.models.sentence_folder import read_pooling
from bermo_ray.tasks.heads import HeadKind
from bermo_ray.tasks.task import Task


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' bars, and its warning of a new head, which is expected."""
    from transformers import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def load_stock(name: str, task: Task, needs_head: bool = False) -> Any:
    """The stock model of a backbone with the task's head, weights in float32.

    Weights that the checkpoint lacks (the head's) are drawn from torch's generator: seed it first.

    Args:
        name: The backbone's name or folder.
        task: Whose head kind and labels the model gets.
        needs_head: Refuses a checkpoint without the head's weights.

    Raises:
        UserError: the family has no such head, or the checkpoint's weights are not the encoder's.
    """
    stock_class = _find_stock_class(name, backbone.load_config(name), task.head)
    settings = {"dtype": torch.float32} | task.head.config_settings(task.labels)
    try:
        with quiet_transformers():
            network, info = stock_class.from_pretrained(
                backbone.locate(name),
                output_loading_info=True,
                ignore_mismatched_sizes=not needs_head,  # a head of other classes is drawn anew
                **settings,
            )
    except (OSError, RuntimeError, SafetensorError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"backbone {name!r}: its weights can't be loaded: {why}") from error
    encoder = f"{network.base_model_prefix}."
    mismatched = [key for key, *_ in info["mismatched_keys"] if key.startswith(encoder)]
    _check_loaded(name, task.head, encoder, [*info["missing_keys"], *mismatched], needs_head)
    if task.head.reads_one_token:
        _set_pooling(network, name)
    return network


def _find_stock_class(name: str, config: Any, head: HeadKind) -> Any:
    """The class of `transformers` that has a head of that kind.

    Raises:
        UserError: the family has no such head.
    """
    import transformers

    stock_class = getattr(transformers, head.stock_class)
    if type(config) not in stock_class._model_mapping:
        raise UserError(f"backbone {name!r}: its family has no head for {head} tasks")
    return stock_class


def build_empty_stock(name: str, task: Task) -> Any:
    """What :func:`load_stock` gives, but for the numbers: its parameters are on the meta device and
    take no memory (XLNet puts its matrices on the CPU whatever it is told). Of the backbone only
    its configuration is read.

    Raises:
        UserError: there is no such backbone, or its family has no such head.
    """
    config = backbone.load_config(name)
    stock_class = _find_stock_class(name, config, task.head)
    for setting, value in task.head.config_settings(task.labels).items():
        setattr(config, setting, value)
    with torch.device("meta"), quiet_transformers():
        return stock_class.from_config(config, dtype=torch.float32)


def _set_pooling(network: Any, name: str) -> None:
    """Has the network's configuration say how a folder of sentence-transformers pools.

    Raises:
        UserError: the family's head can't read a row that is pooled so.
    """
    mode, config = read_pooling(Path(name).expanduser()), network.config
    if mode in (None, "cls"):
        return
    if config.model_type == "modernbert" and mode == "mean":
        config.classifier_pooling = mode  # its head does so itself
        return
    if config.model_type in ("xlnet", "modernbert"):
        raise UserError(f"backbone {name!r}: {config.model_type} heads can't read pooling {mode!r}")
    config.sentence_pooling = mode


def attached_pooling(network: Any) -> str | None:
    """``mean`` or ``max`` where rows are pooled for the head by us; None where the head reads them
    as it is."""
    return getattr(network.config, "sentence_pooling", None)


def _check_loaded(
    name: str, head: HeadKind, encoder: str, missing: list[str], needs_head: bool
) -> None:
    """Refuses a checkpoint that lacks weights of its encoder or, with ``needs_head``, of its head;
    a pooler, which belongs to the head, is often left out."""
    of_head = [key for key in missing if ".pooler." in key or not key.startswith(encoder)]
    of_encoder = [key for key in missing if key not in of_head]
    if needs_head and of_head:
        raise UserError(f"{name!r} has no trained head for {head} tasks: no {of_head[0]}")
    if of_encoder:
        raise UserError(
            f"backbone {name!r}: its weights are not those of its config: {len(of_encoder)} are "
            f"missing or of another shape, {min(of_encoder)} for one"
        )


def tokens_read(network: Any, head: HeadKind) -> slice:
    """Which tokens of a row the head reads: one for most classifiers, all for other kinds."""
    if not head.reads_one_token or attached_pooling(network):
        return slice(None)
    config = network.config
    if config.model_type == "xlnet":
        return slice(-1, None) if config.summary_type == "last" else slice(None)
    # ModernBERT may average; the others read their first token.
    return slice(1) if getattr(config, "classifier_pooling", "cls") == "cls" else slice(None)
