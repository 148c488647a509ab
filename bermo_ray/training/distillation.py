"""A fine-tuned teacher's answers, computed once a row, and the loss against them (methods §2)."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, heads
from bermo_ray.tasks.encoded import IGNORED, Encoded
from bermo_ray.tasks.task import Task
from bermo_ray.training import cache, checkpoint, trained


def problems(settings: spec.Distillation, task: Task, student: str) -> list[str]:
    """What keeps the teacher from being loaded or from fitting task and student, a line each."""
    folder, where = Path(settings.teacher), "distillation.teacher"
    if trained.is_checkpoint(folder):
        taught = trained.trial_of(folder)
        learned, source = trained.task_of(folder), taught.backbone
        labels = learned.labels
        if learned.head != task.head:
            return [f"{where}: its head is for {learned.head} tasks, {task.name} is {task.head}"]
        status = checkpoint.progress(folder).history[-1]["status"]
        if status != "completed":
            return [f"{where}: the trial in {settings.teacher} is {status}, not completed"]
    elif (folder / "fusion.json").is_file():
        return [f"{where}: {folder} was exported with a fusion; give the trial itself"]
    elif (folder / "config.json").is_file():
        config = json.loads((folder / "config.json").read_text())
        labels, source = tuple(config.get("id2label", {}).values()), settings.teacher
    else:
        return [f"{where}: no checkpoint in {settings.teacher!r} (no config.json)"]
    found = []
    if task.labels and labels != task.labels:
        found.append(f"{where}: labels {list(labels)} are not the task's {list(task.labels)}")
    try:
        pieces = [backbone.tokenizer(name).get_vocab() for name in (source, student)]
    except UserError as error:
        return [*found, *(f"{where}: {problem}" for problem in error.problems)]
    if not trained.is_checkpoint(folder) and not found:
        try:
            heads.load(settings.teacher, task, whole=True)
        except UserError as error:
            found += [f"{where}: {problem}" for problem in error.problems]
    if pieces[0] != pieces[1]:
        sizes = f"{len(pieces[0])} and {len(pieces[1])} word pieces"
        found.append(f"{where}: its vocabulary is not that of {student} ({sizes})")
    return found


def _model(folder: Path, task: Task) -> Any:
    """A stock checkpoint, or the model of an earlier trial with its fusion and masks."""
    if trained.is_checkpoint(folder):
        return trained.load(folder).built.model
    return heads.load(str(folder), task)


class Teacher:
    """The teacher's logits for every training row, computed once on a node; the teacher itself is
    not kept."""

    def __init__(
        self, settings: spec.Distillation, data: Encoded, batch_size: int, device: torch.device
    ) -> None:
        self.settings = settings
        self._data = data
        self._per_piece = data.task.head in ("token", "span", "masked")
        model = _model(Path(settings.teacher), data.task).to(device).eval()
        lengths = data.lengths if self._per_piece else np.ones(len(data), dtype=np.int64)
        self._starts = np.cumsum([0, *lengths])
        width = {"span": 2, "regression": 1, "masked": model.config.vocab_size}
        shape = (int(self._starts[-1]), width.get(data.task.head, len(data.task.labels)))
        fill = partial(self._fill, model, batch_size, device)
        if cache.fits(shape):
            self._kept = cache.get(cache.key(model, data, "teacher"), shape, fill)
        else:
            self._kept = np.empty(shape, np.float32)
            fill(self._kept)

    @torch.no_grad()
    def _fill(self, model: Any, batch_size: int, device: torch.device, kept: np.ndarray) -> None:
        data = self._data
        for i in range(0, len(data), batch_size):
            part = data.by_length[i : i + batch_size]
            batch = {k: v.to(device) for k, v in data.batch(part).items()}
            inputs = {k: v for k, v in batch.items() if k not in data.targets}
            answer = [a.float().cpu().numpy() for a in heads.logits(model(**inputs))]
            # Spans have two answers of a number a piece; the others one of a vector.
            every = np.stack(answer, -1) if len(answer) > 1 else answer[0]
            for j, row in enumerate(part):
                # Kept without padding: the next batch that holds the row pads it anew.
                own = data.own(row, every.shape[1]) if self._per_piece else slice(None)
                kept[self._starts[row] : self._starts[row + 1]] = every[j][own]

    def answers(self, row: int) -> list[torch.Tensor]:
        """The teacher's logits of a row: (classes,), (pieces, classes), or start and end."""
        found = torch.from_numpy(self._kept[self._starts[row] : self._starts[row + 1]].copy())
        if self._data.task.head == "span":
            return list(found.unbind(-1))
        return [found if self._per_piece else found[0]]

    def loss(
        self, kind: str, rows: np.ndarray, answer: heads.Logits, targets: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """T²·KL(teacher ‖ student) at temperature T, a mean over what the head's loss averages;
        squared difference for regression; start and end averaged for spans."""
        if kind == "regression":
            wanted = torch.stack([self.answers(r)[0] for r in rows]).to(answer[0].device)
            return F.mse_loss(answer[0], wanted)
        parts = []
        for place, student in enumerate(answer):
            teacher, padding = torch.zeros_like(student), torch.ones_like(student, dtype=torch.bool)
            for j, row in enumerate(rows):
                own = self._data.own(row, student.shape[1]) if kind != "sequence" else slice(None)
                teacher[j, own] = self.answers(row)[place].to(student.device)
                padding[j, own] = False
            t = self.settings.temperature
            teacher, student = teacher / t, student / t
            if kind == "span":  # its softmax runs over the row's pieces: padding gets no share
                lowest = torch.finfo(student.dtype).min
                teacher = teacher.masked_fill(padding, lowest)
                student = student.masked_fill(padding, lowest)
            each = F.kl_div(
                student.log_softmax(-1),
                teacher.log_softmax(-1),
                reduction="none",
                log_target=True,
            ).sum(-1)
            if kind in ("token", "masked"):
                each = each[targets["labels"] != IGNORED]
            parts.append(t**2 * each.sum() / max(1, len(each)))
        return torch.stack(parts).mean()
