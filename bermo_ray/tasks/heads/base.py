"""What a head kind is: all that depends on the shape of a task's answers, in one object.

Shapes: b rows of a batch, s word pieces of its longest row, c classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F

from bermo_ray.tasks.encoded import EncodedRows, Redraw
from bermo_ray.tasks.row_check import RowCheck

if TYPE_CHECKING:  # a task has a head kind
    from bermo_ray.tasks.task import Task

Logits = tuple[torch.Tensor, ...]  # one of [b, c] or [b, s, c], or two of [b, s]: start and end
Gold = dict[str, torch.Tensor]
Columns = dict[str, Any]  # name -> a sequence with a value per encoded row
Collected = tuple[list[int], list[Any], list[Any]]  # row numbers, predicted, gold

_ROWS_AT_ONCE = 1000  # given to the tokenizer in one call


class HeadKind(ABC):
    """One kind of head: its columns, encoding, loss, predictions and distillation.

    A kind has no state. Two objects are equal when their names are, so that a task equals its copy
    from another process. To add a kind, subclass this in a module of its own and put an instance
    into ``bermo_ray.tasks.heads.HEADS``.
    """

    name: str
    """What messages and cache keys call it."""
    columns: tuple[str, ...]
    """Columns of a task's rows; a task of pairs has ``text_pair`` too."""
    stock_class: str
    """Name of the Auto class of `transformers` that has this head."""
    gold_names: tuple[str, ...] = ("labels",)
    """Encoded columns that the loss is measured against."""
    extra_names: tuple[str, ...] = ()
    """Encoded columns that evaluation alone needs."""
    per_piece: bool = False
    """Whether logits have an entry per word piece."""
    reads_one_token: bool = False
    """Whether most models' heads read one token of a row only."""
    gold_are_positions: bool = False
    """Whether the gold is indices of pieces, which move with padding in front."""
    keeps_row_count: bool = True
    """Whether each row gives exactly one encoded row."""
    redraws_gold: bool = False
    """Whether every epoch of training has gold of its own, so that nothing computed from a row's
    pieces can be kept from one epoch to the next."""
    min_length: int = 0
    """The least ``data.max_length``, in pieces, that the kind can work with."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeadKind) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    def config_settings(self, labels: tuple[str, ...]) -> dict[str, Any]:
        """What ``from_pretrained`` must be told of the task's classes."""
        return {}

    def few_shot_classes(self, labels: tuple[str, ...]) -> int:
        """C of few-shot's N·C rows; 1 for a kind without classes."""
        return max(1, len(labels))

    def check(self, check: RowCheck, labels: tuple[str, ...]) -> pa.Table:
        """The rows of ``check``, their classes as numbers in the order of ``labels``.

        Raises:
            UserError: with file, column and row of the first that is wrong.
        """
        return check.rows

    def encode(self, task: "Task", rows: pa.Table, tokenizer: Any, max_length: int) -> Columns:
        """Inputs, gold and extras of the encoded rows, and ``row``, the number of the row that
        each comes from."""
        columns: Columns = {}
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            block = rows.slice(first, _ROWS_AT_ONCE)
            encoded = self.encode_block(task, block, first, tokenizer, max_length)
            for name, values in encoded.items():
                columns.setdefault(name, []).extend(values)
        return columns

    @abstractmethod
    def encode_block(
        self, task: "Task", rows: pa.Table, first: int, tokenizer: Any, max_length: int
    ) -> Columns:
        """What :meth:`encode` gives, for some rows; the first of them has number ``first``."""

    def make_redraw(self, tokenizer: Any) -> Redraw | None:
        """What draws a training batch's gold anew, for a kind that ``redraws_gold``."""
        return None

    def logits(self, output: Any, attention_mask: torch.Tensor | None = None) -> Logits:
        """A model's output as a tuple of tensors of 32 bits; ``attention_mask``: ``[b, s]``."""
        return (output["logits"].float(),)

    @abstractmethod
    def loss(self, logits: Logits, gold: Gold) -> torch.Tensor:
        """The mean loss of a batch, a scalar."""

    @abstractmethod
    def predict(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[Any]:
        """A prediction for each of the batch's encoded rows, without padding."""

    @abstractmethod
    def collect(self, data: EncodedRows, predictions: list[Any]) -> Collected:
        """The numbers of the split's rows, what is predicted of each and what is right, from the
        predictions for all encoded rows in order."""

    @abstractmethod
    def is_right(self, predicted: list[Any], gold: list[Any]) -> list[Any] | None:
        """Whether each row is predicted right: a bool per row, or a list of them; None for a kind
        that knows no right and wrong."""

    def row_classes(self, gold: list[Any]) -> list[int] | None:
        """The class of each row, for a kind whose rows have one; the halves of a dev set are
        stratified by it."""
        return None

    def teacher_width(self, labels: tuple[str, ...]) -> int:
        """How many numbers are kept of a teacher's logits, per row or per piece."""
        return len(labels)

    def pack_logits(self, logits: Logits) -> torch.Tensor:
        """Logits as one tensor, ``[b, width]`` or ``[b, s, width]``."""
        return logits[0]

    def unpack_logits(self, packed: torch.Tensor) -> Logits:
        """The inverse of :meth:`pack_logits`."""
        return (packed,)

    def distillation_loss(
        self,
        student: Logits,
        teacher: Logits,
        gold: Gold,
        padding: torch.Tensor | None,
        temperature: float,
    ) -> torch.Tensor:
        """The student's mean distance from the teacher, over what :meth:`loss` averages.

        Args:
            student: The student's logits.
            teacher: The teacher's, of the same shapes, 0 where the batch is padded.
            gold: The batch's gold.
            padding: ``[b, s]``, true where the batch is padded; None unless logits are per piece.
            temperature: T.
        """
        return temperature_kl(student[0], teacher[0], temperature)


def temperature_kl(
    student: torch.Tensor,
    teacher: torch.Tensor,
    temperature: float,
    counted: torch.Tensor | None = None,
    padding: torch.Tensor | None = None,
) -> torch.Tensor:
    """T²·KL(softmax(teacher/T) ‖ softmax(student/T)) over the last axis, a mean over the others
    (docs/methods.md §2).

    Args:
        student: Logits ``[..., c]``.
        teacher: Logits ``[..., c]``.
        temperature: T.
        counted: ``[...]``, true for the distributions that the mean is over; None: all.
        padding: ``[..., c]``, true for what gets no share of the softmax; None: nothing.
    """
    student, teacher = student / temperature, teacher / temperature
    if padding is not None:
        lowest = torch.finfo(student.dtype).min
        student, teacher = (side.masked_fill(padding, lowest) for side in (student, teacher))
    each = F.kl_div(
        student.log_softmax(-1), teacher.log_softmax(-1), reduction="none", log_target=True
    ).sum(-1)
    if counted is not None:
        each = each[counted]
    return temperature**2 * each.sum() / max(1, len(each))


def label_settings(labels: tuple[str, ...]) -> dict[str, Any]:
    """The settings by which a stock model knows its classes."""
    return {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def model_inputs(coded: Any) -> Columns:
    """Of a tokenizer's answer, what models take; the attention mask follows from the lengths."""
    return {name: coded[name] for name in ("input_ids", "token_type_ids") if name in coded}
