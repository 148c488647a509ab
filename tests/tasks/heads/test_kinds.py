"""Losses, predictions and what is right, by hand, for each head kind."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch

from bermo_ray.models import backbone
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoded import IGNORED
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.tasks.heads import CLASSIFICATION, HEADS, MASKED, REGRESSION, SPAN, TAGGING
from bermo_ray.tasks.ner import CONLL_TAGS, WIKIANN_TAGS

LOGITS = torch.tensor([[[0.0, math.log(3)], [5.0, 0.0], [0.0, 0.0]]])  # [1, 3, 2]
LABELS = torch.tensor([[1, IGNORED, 0]])


def test_the_losses_by_hand() -> None:
    classes = CLASSIFICATION.loss((LOGITS[:, 0],), {"labels": torch.tensor([1])})
    assert classes.item() == pytest.approx(math.log(4 / 3))
    numbers = REGRESSION.loss((torch.tensor([[1.0], [4.0]]),), {"labels": torch.tensor([0.0, 1])})
    assert numbers.item() == (1 + 9) / 2
    for head in (TAGGING, MASKED):  # a mean over the two labelled pieces
        loss = head.loss((LOGITS,), {"labels": LABELS})
        assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
        assert head.loss((LOGITS,), {"labels": torch.full((1, 3), IGNORED)}).item() == 0


def test_only_labelled_pieces_are_distilled() -> None:
    teacher = LOGITS.clone()
    teacher[0, 1] = 100.0  # does not count
    gold = {"labels": LABELS}
    for head in (TAGGING, MASKED):
        assert head.distillation_loss((LOGITS,), (teacher,), gold, None, 2.0).item() == 0
    teacher[0, 2, 0] = 2 * math.log(3)  # p = ¾, ¼ at T = 2 against ½, ½; a mean of two pieces
    kl = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    loss = TAGGING.distillation_loss((LOGITS,), (teacher,), gold, None, 2.0)
    assert loss.item() == pytest.approx(4 * kl / 2, rel=1e-5)


def test_what_is_right() -> None:
    assert CLASSIFICATION.is_right([0, 1], [0, 0]) == [True, False]
    assert REGRESSION.is_right([0.5], [0.5]) is None
    for head in (TAGGING, MASKED):
        right = head.is_right([np.array([1, 2]), np.array([3])], [np.array([1, 0]), np.array([3])])
        assert right == [[True, False], [True]]


def test_a_word_that_was_cut_away_is_predicted_as_the_first_tag() -> None:
    rows = pa.table({"words": [["the", "zqzq", "dog", "slept"]], "tags": [[0, 1, 2, 1]]})
    task = registry.get_task("entities")
    data = encode_rows(task, rows, backbone.load_tokenizer("embedded"), 6)
    logits = torch.zeros(1, 6, len(task.labels))
    logits[..., 3] = 1.0
    predicted = TAGGING.predict(data, [0], (logits,))
    assert [row.tolist() for row in predicted] == [[3, 3, 0, 0]]
    assert [row.tolist() for row in TAGGING.collect(data, predicted)[2]] == [[0, 1, 2, 1]]


def test_only_hidden_pieces_are_collected() -> None:
    task, rows = registry.get_task("masked_words"), pa.table({"text": ["the old dog slept ."]})
    data = encode_rows(task, rows, backbone.load_tokenizer("embedded"), 16)
    numbers, predicted, gold = MASKED.collect(data, [np.arange(data.lengths[0])])
    (labels,) = data.gold["labels"]
    (hidden,) = np.flatnonzero(labels != IGNORED)
    assert numbers == [0]
    assert predicted[0].tolist() == [hidden]
    assert gold[0].tolist() == [labels[hidden]]


def test_stock_models_are_told_of_the_classes() -> None:
    settings = {"num_labels": 2, "id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}}
    labels = ("a", "b")
    assert CLASSIFICATION.config_settings(labels) == TAGGING.config_settings(labels) == settings
    assert REGRESSION.config_settings(()) == {"num_labels": 1}
    assert SPAN.config_settings(()) == MASKED.config_settings(()) == {}


def test_a_teachers_logits_are_packed_and_unpacked() -> None:
    taught = {name: head for name, head in HEADS.items() if not head.redraws_gold}
    widths = {name: head.teacher_width(("a", "b", "c")) for name, head in taught.items()}
    assert widths == {"sequence": 3, "regression": 1, "token": 3, "span": 2}
    sides = (torch.randn(2, 5), torch.randn(2, 5))
    packed = SPAN.pack_logits(sides)
    assert packed.shape == (2, 5, 2)
    assert all(torch.equal(a, b) for a, b in zip(SPAN.unpack_logits(packed), sides, strict=True))


def test_few_shot_counts_classes_and_of_tags_the_entity_types() -> None:
    assert CLASSIFICATION.few_shot_classes(("a", "b", "c")) == 3
    assert [head.few_shot_classes(()) for head in (REGRESSION, SPAN, MASKED)] == [1, 1, 1]
    assert TAGGING.few_shot_classes(CONLL_TAGS) == 4
    assert TAGGING.few_shot_classes(WIKIANN_TAGS) == 3
    assert TAGGING.few_shot_classes(("NOUN", "VERB", "ADJ")) == 3  # no BIO tags: each is a class
