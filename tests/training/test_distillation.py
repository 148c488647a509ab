from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bermo_ray import cache
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, stock
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.training.check import check_trials
from bermo_ray.training.distillation import Teacher
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Distillation, Trial

CPU = torch.device("cpu")
TASKS = ("tense", "similarity", "entities", "answer_span")


@pytest.fixture
def teacher_of(tiny: str, tmp_path: Path) -> Any:
    def make(name: str) -> str:
        torch.manual_seed(3)
        model = stock.load_stock(tiny, registry.get_task(name))
        for parameter in model.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
        model.save_pretrained(tmp_path / name)
        for file in Path(tiny).glob("*token*"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        return str(tmp_path / name)

    return make


@pytest.mark.parametrize("name", TASKS)
def test_a_student_that_is_the_teacher_has_nothing_to_learn(teacher_of: Any, name: str) -> None:
    task, folder = registry.get_task(name), teacher_of(name)
    rows = task.take_rows(Data(task=name, train_rows=20), "train", 0)
    data = encode_rows(task, rows, backbone.load_tokenizer(folder), 128)
    teacher = Teacher(Distillation(teacher=folder), data, 8, CPU)
    student = stock.load_stock(folder, task).eval()
    order = np.array([3, 11, 0, 19, 7])  # other rows together than when the teacher answered
    batch = data.batch(order)
    gold = {k: batch.pop(k) for k in data.gold}
    with torch.no_grad():
        logits = task.head.logits(student(**batch))
        assert teacher.loss(order, logits, gold).item() == pytest.approx(0, abs=1e-6)
        changed = tuple(a + torch.randn_like(a) for a in logits)
        assert teacher.loss(order, changed, gold).item() > 0.01


def test_the_loss_by_hand(teacher_of: Any) -> None:
    task, folder = registry.get_task("tense"), teacher_of("tense")
    rows = task.take_rows(Data(task="tense", train_rows=4), "train", 0)
    data = encode_rows(task, rows, backbone.load_tokenizer(folder), 128)
    teacher = Teacher(Distillation(teacher=folder, temperature=2.0), data, 4, CPU)
    student = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    known = torch.stack([teacher.logits(r)[0] for r in (1, 2)])
    p, q = (known / 2).softmax(-1), (student / 2).softmax(-1)
    expected = 4 * (p * (p.log() - q.log())).sum(-1).mean()
    loss = teacher.loss(np.array([1, 2]), (student,), {})
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_it_changes_what_is_learned(tiny: str, teacher_of: Any) -> None:
    trial = Trial(data=Data(train_rows=32, dev_rows=20), backbone=tiny, epochs=1)
    taught = trial.replace(distillation=Distillation(teacher=teacher_of("tense")))
    check_trials([taught])
    alone, with_teacher = run_locally(trial)[-1], run_locally(taught)[-1]
    assert alone.loss != with_teacher.loss


def test_a_teacher_that_does_not_fit_is_one_line(teacher_of: Any, tmp_path: Path) -> None:
    for folder, line in (
        (str(tmp_path / "nowhere"), "no checkpoint in"),
        (teacher_of("entailment"), "its labels are not the task's: the task alone has present, pa"),
    ):
        trial = Trial(distillation=Distillation(teacher=folder))
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            check_trials([trial])
        assert line in str(caught.value)


def test_rows_that_are_drawn_anew_have_no_teacher(tiny: str) -> None:
    data = Data(task="masked_words", train_rows=8, dev_rows=8)
    trial = Trial(data=data, backbone=tiny, distillation=Distillation(teacher=tiny))
    line = (
        "distillation: a teacher's logits are kept of fixed rows, "
        "but masked_words hides other pieces in every epoch"
    )
    for refused in (lambda: check_trials([trial]), lambda: run_locally(trial)):
        with pytest.raises(UserError) as caught:
            refused()
        assert caught.value.problems == (line,)


@pytest.mark.parametrize("name", TASKS)
def test_a_teacher_answers_once_per_node(
    teacher_of: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, folder = registry.get_task(name), teacher_of(name)
    rows = task.take_rows(Data(task=name, train_rows=20), "train", 0)
    data = encode_rows(task, rows, backbone.load_tokenizer(folder), 128)
    monkeypatch.setenv(cache.CACHE_VARIABLE, "off")
    alone = Teacher(Distillation(teacher=folder), data, 4, CPU)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    first = Teacher(Distillation(teacher=folder), data, 4, CPU)

    def never(*_: Any) -> None:
        raise AssertionError("a second one has nothing to compute")

    monkeypatch.setattr(Teacher, "_fill", never)
    second = Teacher(Distillation(teacher=folder), data, 4, CPU)
    for row in range(20):
        for a, b, c in zip(*(t.logits(row) for t in (alone, first, second)), strict=True):
            assert torch.equal(a, b)
            assert torch.equal(b, c)
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 1
