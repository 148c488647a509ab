"""A fine-tuned teacher's answers, computed once a row, and the loss against them (methods §2)."""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from bermo_ray import trial as spec
from bermo_ray.models import heads
from bermo_ray.tasks.encoding import IGNORED, Encoded
from bermo_ray.tasks.task import Task


def problems(settings: spec.Distillation, task: Task) -> list[str]:
    """What keeps the teacher from being loaded or from fitting the task, a line each."""
    file = Path(settings.teacher) / "config.json"
    if not file.is_file():
        return [f"distillation.teacher: no checkpoint in {settings.teacher!r} (no config.json)"]
    labels = tuple(json.loads(file.read_text()).get("id2label", {}).values())
    if task.labels and labels != task.labels:
        return [
            f"distillation.teacher: labels {list(labels)} are not the task's {list(task.labels)}"
        ]
    return []


class Teacher:
    """The teacher's logits for every training row; the teacher itself is not kept."""

    def __init__(
        self, settings: spec.Distillation, data: Encoded, batch_size: int, device: torch.device
    ) -> None:
        self.settings = settings
        self._data = data
        model = heads.load(settings.teacher, data.task).to(device).eval()
        rows = sorted(range(len(data)), key=lambda r: len(data.inputs["input_ids"][r]))
        self._logits: dict[int, tuple[torch.Tensor, ...]] = {}
        with torch.no_grad():
            for i in range(0, len(rows), batch_size):
                part = rows[i : i + batch_size]
                batch = {k: v.to(device) for k, v in data.batch(part).items()}
                inputs = {k: v for k, v in batch.items() if k not in data.targets}
                answer = [a.cpu() for a in heads.logits(model(**inputs))]
                for j, row in enumerate(part):
                    # Kept without padding: the next batch that holds the row pads it anew.
                    per_piece = data.task.head in ("token", "span", "masked")
                    own = data.own(row, answer[0].shape[1]) if per_piece else slice(None)
                    self._logits[row] = tuple(a[j][own] for a in answer)

    def loss(
        self, kind: str, rows: np.ndarray, answer: heads.Logits, targets: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """T²·KL(teacher ‖ student) at temperature T, a mean over what the head's loss averages;
        squared difference for regression; start and end averaged for spans."""
        if kind == "regression":
            wanted = torch.stack([self._logits[r][0] for r in rows]).to(answer[0].device)
            return F.mse_loss(answer[0], wanted)
        parts = []
        for place, student in enumerate(answer):
            teacher, padding = torch.zeros_like(student), torch.ones_like(student, dtype=torch.bool)
            for j, row in enumerate(rows):
                own = self._data.own(row, student.shape[1]) if kind != "sequence" else slice(None)
                teacher[j, own] = self._logits[row][place].to(student.device)
                padding[j, own] = False
            if kind == "span":  # its softmax runs over the row's pieces: padding gets no share
                lowest = torch.finfo(student.dtype).min
                teacher = teacher.masked_fill(padding, lowest)
                student = student.masked_fill(padding, lowest)
            t = self.settings.temperature
            each = F.kl_div(
                (student / t).log_softmax(-1),
                (teacher / t).log_softmax(-1),
                reduction="none",
                log_target=True,
            ).sum(-1)
            if kind in ("token", "masked"):
                each = each[targets["labels"] != IGNORED]
            parts.append(t**2 * each.mean())
        return torch.stack(parts).mean()
