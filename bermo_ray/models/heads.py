"""Head kinds: each is the stock `transformers` head, so that what is trained loads anywhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.tasks.encoded import IGNORED
from bermo_ray.tasks.task import HeadKind, Task

_STOCK: dict[HeadKind, str] = {
    "sequence": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
    "masked": "AutoModelForMaskedLM",
}

Logits = tuple[torch.Tensor, ...]  # one tensor, or two (start, end) for spans


def stock_name(task: Task) -> str:
    """The class of `transformers` that has the task's head."""
    return _STOCK[task.head]


@contextmanager
def quiet() -> Iterator[None]:
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


def load(name: str, task: Task, whole: bool = False) -> Any:
    """The stock model of that backbone with the task's head, weights in float32.

    Weights that the checkpoint lacks (the head) are drawn from torch's generator: seed it first.
    ``whole`` refuses that: the head must be there too.

    Raises:
        UserError: the family has no such head, or the checkpoint's weights are not the encoder's.
    """
    import transformers

    settings: dict[str, Any] = {"dtype": torch.float32}  # v5 would keep a half-precision file's
    if task.head in ("sequence", "token"):
        settings["num_labels"] = len(task.labels)
        settings["id2label"] = dict(enumerate(task.labels))
        settings["label2id"] = {label: i for i, label in enumerate(task.labels)}
    elif task.head == "regression":
        settings["num_labels"] = 1
    stock = getattr(transformers, _STOCK[task.head])
    if type(backbone.config(name)) not in stock._model_mapping:
        raise UserError(f"backbone {name!r}: its family has no head for {task.head} tasks")
    try:
        with quiet():
            model, info = stock.from_pretrained(
                backbone.location(name), output_loading_info=True, **settings
            )
    except (OSError, RuntimeError, SafetensorError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"backbone {name!r}: its weights can't be loaded: {why}") from error
    encoder = f"{model.base_model_prefix}."
    lost = [k for k in info["missing_keys"] if k.startswith(encoder) and ".pooler." not in k]
    headless = [k for k in info["missing_keys"] if k not in lost and ".pooler." not in k]
    if whole and headless:
        raise UserError(f"{name!r} has no trained head for {task.head} tasks: no {headless[0]}")
    if lost:
        raise UserError(
            f"backbone {name!r}: its weights are not those of its config: {len(lost)} are missing, "
            f"{sorted(lost)[0]} for one"
        )
    return model


def reads(model: Any, kind: HeadKind) -> slice:
    """Which tokens of a row the head reads: one for most classifiers, all for the other heads."""
    if kind not in ("sequence", "regression"):
        return slice(None)
    if model.config.model_type == "xlnet":
        return slice(-1, None) if model.config.summary_type == "last" else slice(None)
    # ModernBERT may average; the others read their first token.
    return slice(1) if getattr(model.config, "classifier_pooling", "cls") == "cls" else slice(None)


def logits(output: Any, mask: torch.Tensor | None = None) -> Logits:
    """The model's answer as a tuple: (rows, classes), (rows, pieces, classes), or start and end.

    A span's softmax runs over pieces: with the attention ``mask``, padding gets no share of it, so
    that a row's loss does not depend on what it is batched with.
    """
    if "start_logits" not in output:
        return (output["logits"],)
    both = (output["start_logits"], output["end_logits"])
    if mask is None:
        return both
    return tuple(side.masked_fill(mask == 0, torch.finfo(side.dtype).min) for side in both)


def loss(kind: HeadKind, answer: Logits, targets: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean loss of a batch: cross entropy, squared error, or the mean of start's and end's."""
    if kind == "regression":
        return F.mse_loss(answer[0].squeeze(-1), targets["labels"].float())
    if kind == "span":
        start, end = (targets["start_positions"], targets["end_positions"])
        return (F.cross_entropy(answer[0], start) + F.cross_entropy(answer[1], end)) / 2
    if kind == "sequence":
        return F.cross_entropy(answer[0], targets["labels"])
    wanted = targets["labels"].flatten()
    total = F.cross_entropy(answer[0].flatten(0, -2), wanted, ignore_index=IGNORED, reduction="sum")
    return total / (wanted != IGNORED).sum().clamp(min=1)  # rows without a label add nothing
