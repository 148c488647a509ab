"""A fine-tuned teacher's logits, computed once per row, and the loss against them
(docs/methods.md §2)."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fine_tuned
from bermo_ray.record import Status
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.heads import Logits
from bermo_ray.tasks.task import Task
from bermo_ray.training import array_cache, checkpoint, model

_WHERE = "distillation.teacher"


def find_problems(settings: spec.Distillation, task: Task, student: str) -> list[str]:
    """What keeps the teacher from being loaded, or from fitting task and student, one line each.

    Args:
        settings: Which teacher.
        task: What the student learns.
        student: The student's backbone.
    """
    folder = Path(settings.teacher)
    if model.is_checkpoint(folder):
        return _find_trial_problems(folder, task, student)
    problems = [f"{_WHERE}: {problem}" for problem in fine_tuned.find_problems(folder, task)]
    if not fine_tuned.is_stock_folder(folder):
        return problems
    return problems + _compare_vocabularies(settings.teacher, student)


def _find_trial_problems(folder: Path, task: Task, student: str) -> list[str]:
    """Of the checkpoint of an earlier trial."""
    teacher_task = model.read_task(folder)
    if teacher_task.head != task.head:
        return [f"{_WHERE}: its head is for {teacher_task.head} tasks, {task.name} is {task.head}"]
    status = checkpoint.read_progress(folder).history[-1].status
    if status is not Status.COMPLETED:
        return [f"{_WHERE}: the trial in {folder} is {status}, not completed"]
    return [
        *model.find_label_problems(_WHERE, teacher_task.labels, task),
        *_compare_vocabularies(model.read_trial(folder).backbone, student),
    ]


def _compare_vocabularies(teacher: str, student: str) -> list[str]:
    try:
        vocabularies = [backbone.load_tokenizer(n).get_vocab() for n in (teacher, student)]
    except UserError as error:
        return [f"{_WHERE}: {problem}" for problem in error.problems]
    if vocabularies[0] == vocabularies[1]:
        return []
    sizes = " and ".join(str(len(vocabulary)) for vocabulary in vocabularies)
    return [f"{_WHERE}: its vocabulary is not that of {student} ({sizes} word pieces)"]


class Teacher:
    """The teacher's logits for every training row, computed once per node; the teacher itself is
    not kept.

    Args:
        settings: Which teacher, and the weights of its loss.
        data: The rows it answers for.
        batch_size: Rows that it answers at once.
        device: Where it runs.
    """

    def __init__(
        self, settings: spec.Distillation, data: EncodedRows, batch_size: int, device: torch.device
    ) -> None:
        self.settings = settings
        self._data, self._head = data, data.task.head
        network = model.load_network(Path(settings.teacher), data.task).to(device).eval()
        lengths = data.lengths if self._head.per_piece else np.ones(len(data), dtype=np.int64)
        self._offsets = np.cumsum([0, *lengths])
        width = self._head.teacher_width(data.task.labels)
        shape = (int(self._offsets[-1]), width)
        fill = partial(self._fill, network, batch_size, device)
        if array_cache.fits(shape):
            key = array_cache.make_key(network, data, "teacher")
            self._kept = array_cache.read_or_fill(key, shape, fill)
        else:
            self._kept = np.empty(shape, np.float32)
            fill(self._kept)

    @torch.no_grad()
    def _fill(self, network: Any, batch_size: int, device: torch.device, kept: np.ndarray) -> None:
        """Writes all rows' logits into ``kept``, without padding: the next batch that holds a row
        pads it anew."""
        data = self._data
        for i in range(0, len(data), batch_size):
            rows = data.rows_by_length[i : i + batch_size]
            batch = {name: values.to(device) for name, values in data.batch(rows).items()}
            inputs = {name: v for name, v in batch.items() if name not in data.gold}
            logits = self._head.logits(network(**inputs))
            packed = self._head.pack_logits(tuple(side.float().cpu() for side in logits)).numpy()
            for j, row in enumerate(rows):
                pieces = self._pieces(row, packed.shape[1])
                kept[self._offsets[row] : self._offsets[row + 1]] = packed[j][pieces]

    def _pieces(self, row: int, width: int) -> slice:
        """Which entries of a row's logits in a batch of that width are no padding."""
        return self._data.piece_slice(row, width) if self._head.per_piece else slice(None)

    def logits(self, row: int) -> Logits:
        """The teacher's logits for one row: ``[c]``, ``[pieces, c]``, or start and end
        ``[pieces]``."""
        kept = torch.from_numpy(self._kept[self._offsets[row] : self._offsets[row + 1]].copy())
        return self._head.unpack_logits(kept if self._head.per_piece else kept[0])

    def loss(
        self, rows: np.ndarray, student: Logits, gold: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """T²·KL(teacher ‖ student) for the rows of a batch, or what the head kind has in its place;
        ``student``: the student's logits."""
        teacher = tuple(torch.zeros_like(side) for side in student)
        width = student[0].shape[1]
        padding = torch.ones(len(rows), width, dtype=torch.bool) if self._head.per_piece else None
        for j, row in enumerate(rows):
            pieces = self._pieces(row, width)
            for side, logits in zip(teacher, self.logits(row), strict=True):
                side[j, pieces] = logits.to(side.device)
            if padding is not None:
                padding[j, pieces] = False
        if padding is not None:
            padding = padding.to(student[0].device)
        temperature = self.settings.temperature
        return self._head.distillation_loss(student, teacher, gold, padding, temperature)
