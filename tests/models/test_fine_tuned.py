"""Fine-tuned folders: their own head, to the bit, with their classes in the task's order."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bermo_ray.errors import UserError
from bermo_ray.models.fine_tuned import find_problems, load_fine_tuned, match_labels
from bermo_ray.tasks.heads import HEADS
from bermo_ray.tasks.task import Task
from bermo_ray.training.model import build_model
from bermo_ray.trial import Fusion, Trial
from tests.support.families import FAMILIES, IDS, MASK, STOCK, family_folder, task_of

__all__ = ["family_folder"]  # a fixture


def stock_logits(folder: str, head: str) -> tuple[torch.Tensor, ...]:
    network = getattr(transformers, STOCK[head][0]).from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return HEADS[head].logits(network.eval()(input_ids=IDS, attention_mask=MASK))


def with_labels(folder: str, labels: tuple[str, ...]) -> None:
    config = transformers.AutoConfig.from_pretrained(folder)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    config.save_pretrained(folder)


@pytest.mark.parametrize("head", ["sequence", "regression", "token", "span"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_trial_that_starts_from_it_has_its_logits(
    family_folder: Any, family: str, head: str
) -> None:
    folder = family_folder(family, head)
    if head in ("sequence", "token"):
        with_labels(folder, ("c", "a", "b"))  # the task's are a, b, c
    trial = Trial(backbone=folder, warm_start=folder, fusion=Fusion(name="last"))
    network = build_model(trial, task_of(head)).network.eval()
    with torch.no_grad():
        logits = HEADS[head].logits(network(input_ids=IDS, attention_mask=MASK))
    expected = stock_logits(folder, head)
    if head in ("sequence", "token"):
        expected = (expected[0][..., [1, 2, 0]],)
        assert network.config.id2label == {0: "a", 1: "b", 2: "c"}
    for ours, theirs in zip(logits, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_labels_are_matched_by_name_by_case_or_by_number() -> None:
    assert match_labels(["b", "c", "a"], ["a", "b", "c"]) == [2, 0, 1]
    assert match_labels(["POS", "NEG"], ["neg", "pos"]) == [1, 0]
    assert match_labels(["LABEL_0", "LABEL_1"], ["no", "yes"]) == [0, 1]
    assert match_labels(["a", "A"], ["A", "a"]) == [1, 0]
    assert match_labels([], []) == []


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        (("a", "b", "x"), "the task alone has c; it alone has x"),
        (("a", "b"), "the task alone has c"),
        (("a", "b", "c", "d", "e"), "it alone has d, e"),
        (("LABEL_0", "LABEL_1"), "the task alone has a, b, c; it alone has LABEL_0, LABEL_1"),
    ],
)
def test_labels_that_differ_are_named(labels: tuple[str, ...], line: str) -> None:
    with pytest.raises(UserError) as error:
        match_labels(labels, ["a", "b", "c"])
    assert str(error.value) == f"its labels are not the task's: {line}"


def test_a_folder_without_such_a_head_is_one_line(family_folder: Any, tmp_path: Path) -> None:
    tagger, pretrained = family_folder("bert", "token"), family_folder("bert", "masked")
    wide, task = family_folder("bert", "sequence"), task_of("sequence")
    number = Task("n", HEADS["regression"], (), "spearman", False, task.open_source)
    for folder, of_task, line in (
        (tagger, task, "is a BertForTokenClassification, but t needs a BertForSequenceClass"),
        (pretrained, task, "is a BertForMaskedLM, but t needs a BertForSequenceClassification"),
        (wide, number, "its head has 3 outputs, but n is one number"),
        (str(tmp_path), task, "(no config.json)"),
    ):
        problems = find_problems(Path(folder), of_task)
        assert len(problems) == 1
        assert line in problems[0]


def test_a_checkpoint_that_lost_its_head_is_refused(family_folder: Any, tmp_path: Path) -> None:
    source = Path(family_folder("distilbert", "sequence"))
    network = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    weights = {k: v for k, v in network.state_dict().items() if not k.startswith("pre_class")}
    network.save_pretrained(tmp_path, state_dict=weights)
    with_labels(str(tmp_path), ("a", "b", "c"))
    (problem,) = find_problems(tmp_path, task_of("sequence"))
    assert "has no trained head for sequence tasks: no pre_classifier." in problem


def test_a_backbone_with_a_head_of_other_classes_gets_a_new_one(family_folder: Any) -> None:
    folder = family_folder("roberta", "sequence")
    task = task_of("sequence")
    five = Task("t", task.head, tuple("abcde"), "accuracy", False, task.open_source)
    network = build_model(Trial(backbone=folder), five).network
    assert network.classifier.out_proj.out_features == 5
    stock = load_fine_tuned(Path(folder), task)
    ours, theirs = (dict(n.base_model.named_parameters()) for n in (network, stock))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
