"""A task of the user's own: described once, checked row by row, and part of a trial's identity."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks.registry import resolve_task, select_task
from bermo_ray.tasks.splits import split_off, split_off_groups
from bermo_ray.tasks.task import sort_labels
from bermo_ray.tasks.user_data import describe_user_data, name_user_task
from bermo_ray.trial import Data, Trial
from tests.support.task_files import article, write_text
from tests.support.user_files import reviews, write_rows


def describe(folder: Path, rows: list[dict[str, Any]], name: str = "a.jsonl", **more: Any) -> Data:
    file = write_rows(folder / name, rows)
    return Data(task="mine", user=describe_user_data(file, **more))


def labelled(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"row {i}", "label": label} for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "kind", "classes"),
    [
        (["b", "a", "a"], "classification", ("a", "b")),
        ([10, 9, -1], "classification", ("-1", "9", "10")),
        ([True, False, True], "classification", ("false", "true")),
        ([1.0, 3.0, 2.0], "classification", ("1", "2", "3")),
        (["3", "20", "3"], "classification", ("3", "20")),
        ([0.5, 1.0, 2.0], "regression", ()),
        (["0.5", "1", "2e3"], "regression", ()),
    ],
)
def test_the_kind_follows_from_the_labels(
    tmp_path: Path, labels: list[Any], kind: str, classes: tuple[str, ...]
) -> None:
    data = describe(tmp_path, labelled(*labels * 4), dev_share=0.5)
    assert data.user is not None
    assert (data.user.kind, data.user.text, data.user.label) == (kind, ("text",), "label")
    task = resolve_task(data)
    assert task.labels == classes
    assert task.metric == {"classification": "accuracy", "regression": "spearman"}[kind]
    values = task.read_rows(data, "train")["label"].to_pylist()
    if classes:
        assert set(values) == set(range(len(classes)))
    else:
        assert set(values) == {float(label) for label in labels}


def test_a_dev_set_is_split_off_by_a_seed_with_the_same_classes(tmp_path: Path) -> None:
    data = describe(tmp_path, reviews(40), "a.csv", text=["review"], label="stars")
    task = resolve_task(data)
    train, dev = (task.read_rows(data, part) for part in ("train", "dev"))
    assert (train.num_rows, dev.num_rows) == (32, 8)
    assert Counter(dev["label"].to_pylist()) == {0: 2, 1: 6}  # bad, good: one of four is bad
    texts = train["text"].to_pylist() + dev["text"].to_pylist()
    assert sorted(texts) == sorted(row["review"] for row in reviews(40))
    again = resolve_task(data).read_rows(data, "dev")
    assert again.equals(dev)
    assert data.user is not None
    other = data.model_copy(update={"user": data.user.model_copy(update={"split_seed": 1})})
    assert not task.read_rows(other, "dev").equals(dev)
    assert Trial(data=other).id != Trial(data=data).id


def test_a_split_takes_its_share_of_every_class() -> None:
    classes = np.array([0] * 50 + [1] * 9 + [2])
    stay, gone = split_off(60, 0.2, 3, classes)
    assert sorted([*stay, *gone]) == list(range(60))
    assert len(gone) == 11
    assert (classes[gone] == 0).sum() == 10
    assert (classes[gone] == 1).sum() == 1
    assert 2 not in classes[gone]  # its only row is learned from
    assert len(split_off(60, 0.2, 3)[1]) == 12


def test_the_first_rows_of_a_dev_set_are_of_all_classes(tmp_path: Path) -> None:
    rows = labelled(*["a"] * 100, *["b"] * 100)
    data = describe(tmp_path, rows).model_copy(update={"dev_rows": 10})
    dev = resolve_task(data).take_rows(data, "dev", seed=0)
    assert Counter(dev["label"].to_pylist()) == {0: 6, 1: 4}


def test_groups_stay_together() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 4])
    stay, gone = split_off_groups(groups, 0.3, 0)
    assert not set(groups[stay]) & set(groups[gone])
    assert 0 < len(gone) <= 3
    assert len(stay) + len(gone) == 10


def test_labels_are_ordered_as_a_person_would() -> None:
    tags = pa.chunked_array([[["I-PER", "O"], ["B-PER", "B-LOC", "I-LOC"]]])
    assert sort_labels(tags) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert sort_labels(pa.chunked_array([["10", "2", "-3", "x"]])) == ("-3", "2", "10", "x")


def test_pairs_tags_and_questions(tmp_path: Path) -> None:
    pairs = [{"premise": f"p{i}", "hypothesis": f"h{i}", "label": i % 2} for i in range(10)]
    data = describe(tmp_path, pairs)
    task = resolve_task(data)
    assert task.pair
    assert task.read_rows(data, "dev").column_names == ["text", "text_pair", "label"]

    tagged = [{"words": ["a", "b"], "ner": ["B-X", "O"]}, {"words": ["c"], "ner": ["O"]}] * 5
    data = describe(tmp_path, tagged, "b.jsonl")
    task = resolve_task(data)
    assert (task.metric, task.labels, task.extra_metrics) == (
        "entity_f1",
        ("O", "B-X"),
        ("tag_accuracy",),
    )
    spoken = [{"words": ["a", "b"], "label": ["NN", "VB"]}, {"words": ["c"], "label": ["NN"]}] * 5
    assert resolve_task(describe(tmp_path, spoken, "c.jsonl")).metric == "tag_accuracy"

    content = json.loads(article(("old dog", 4)))
    content["data"] *= 4
    for i, one in enumerate(content["data"]):
        content["data"][i] = json.loads(json.dumps(one).replace("slept .", f"slept {i} ."))
    file = write_text(tmp_path, "squad.json", json.dumps(content))
    data = Data(task="mine", user=describe_user_data(file, dev_share=0.25))
    rows = [resolve_task(data).read_rows(data, part) for part in ("train", "dev")]
    assert [part.num_rows for part in rows] == [3, 1]
    assert rows[1]["answers"].to_pylist() == [["old dog"]]
    assert resolve_task(data).metric == "span_f1"


def test_identity_is_the_contents_not_the_place(tmp_path: Path) -> None:
    options: dict[str, Any] = {"text": ["review"], "label": "stars"}
    ids = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ids.append(Trial(data=describe(tmp_path / name, reviews(), "a.csv", **options)).id)
    assert ids[0] == ids[1]
    changed = Trial(data=describe(tmp_path, reviews(39), "a.csv", **options))
    assert changed.id != ids[0]
    assert changed.id != Trial(data=Data(task="mine")).id
    assert Trial.from_json(changed.to_json()) == changed
    assert changed.flat()["data.user.text"] == '["review"]'
    assert changed.data.has_source_of(changed.data)
    other = describe(tmp_path / "one", reviews(), "a.csv", **options)
    assert not changed.data.has_source_of(other)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    data = describe(tmp_path, labelled("a", "b", "a", "b"), dev_share=0.5)
    assert resolve_task(data).read_rows(data, "train").num_rows == 2
    write_rows(tmp_path / "a.jsonl", labelled("a", "b", "a", "b", "b"))
    with pytest.raises(UserError, match=r"a\.jsonl: changed since the trial was described"):
        resolve_task(data)
    (tmp_path / "a.jsonl").unlink()
    assert select_task(data).find_problems(data) == [f"no file {tmp_path}/a.jsonl"] * 2


@pytest.mark.parametrize(
    ("rows", "options", "problem"),
    [
        (labelled("a", "b"), {"label": "stars"}, "no column 'stars'; it has text, label"),
        (labelled("a", "b"), {"text": ["review"]}, "no column 'review'; it has text, label"),
        (labelled("a", None), {}, "a.jsonl: column 'label', line 2: no label"),
        (labelled("a", " "), {}, "a.jsonl: column 'label', line 2: no label"),
        ([{"text": "x", "label": 1}, {"label": 2}], {}, "column 'text', line 2: no text"),
        ([{"text": " ", "label": 1}], {}, "column 'text', line 1: no text"),
        ([{"text": 5, "label": 1}], {}, "column 'text', line 1: expected text, found int64"),
        (labelled("a", "a"), {}, "label: all training rows have 'a'; there is nothing to learn"),
        (labelled(*range(30)), {}, "has 30 different whole numbers; give classification or"),
        (labelled("a", "b", "c"), {"metric": "f1"}, "metric: f1 is of two classes, 'label' has 3"),
        (labelled("a", "b"), {"metric": "pearson"}, "metric: got 'pearson', classification has"),
        (labelled("a", "b"), {"kind": "regression"}, "line 1: 'a' is no number; give `kind`"),
        (labelled(0.5, 1), {"kind": "classification"}, "line 1: a fraction is no class; give"),
        (labelled("a", "b"), {"kind": "tags"}, "expected a list of words, found string"),
        (labelled("a", "b"), {"kind": "span"}, "text: got 1 columns, span has 2"),
        ([{"a": "x", "b": "y", "c": "z"}], {}, "text: which column is it?"),
        ([{"text": "x", "b": "y", "c": "z"}], {}, "label: which column is it?"),
        ([{"text": "x"}], {}, "label: "),
        (labelled("a", "b"), {"dev_share": 1.5}, "dev_share: Input should be less than 1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError) as error:
        describe(tmp_path, rows, **options)
    assert len(error.value.problems) == 1
    assert problem in str(error.value)


def test_a_label_seen_only_in_dev_is_named(tmp_path: Path) -> None:
    dev = write_rows(tmp_path / "dev.csv", labelled("a", "c"))
    with pytest.raises(UserError) as error:
        describe(tmp_path, labelled("a", "b"), "train.csv", dev=dev)
    line = "column 'label', line 3: label 'c' is in no training row; they have a, b"
    assert str(error.value) == f"{dev}: {line}"


def test_each_file_with_a_problem_has_a_line(tmp_path: Path) -> None:
    dev = write_rows(tmp_path / "dev.csv", [{"text": "x", "y": 1}])
    test = write_rows(tmp_path / "test.csv", [{"text": "", "label": 1}])
    with pytest.raises(UserError) as error:
        describe(tmp_path, labelled("a", "b"), "train.csv", dev=dev, test=test)
    assert error.value.problems == (
        f"{dev}: no column 'label'; it has text, y",
        f"{test}: column 'text', line 2: no text",
    )
    with pytest.raises(UserError) as error:
        describe_user_data(tmp_path / "none.csv", tmp_path / "no.csv")
    assert error.value.problems == (
        f"train: no file {tmp_path}/none.csv",
        f"dev: no file {tmp_path}/no.csv",
    )


def test_a_dev_set_that_would_be_empty_is_refused(tmp_path: Path) -> None:
    data = describe(tmp_path, labelled("a", "b"))
    with pytest.raises(UserError, match=r"dev_share: 0\.2 of 2 rows leaves none to measure on"):
        resolve_task(data)


def test_a_name_of_ours_is_refused(tmp_path: Path) -> None:
    data = describe(tmp_path, labelled("a", "b")).model_copy(update={"task": "sst2"})
    with pytest.raises(UserError, match="'sst2' is a task already; give your own another name"):
        select_task(data)
    assert name_user_task(tmp_path / "reviews" / "train.csv", None) == "reviews"
    assert name_user_task("my.csv", None) == "my"
    assert name_user_task(None, "stanfordnlp/imdb:plain") == "imdb"


def test_a_dataset_by_name_with_its_names_of_classes(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features(
        {"text": datasets.Value("string"), "y": datasets.ClassLabel(names=["spam", "ham"])}
    )
    rows = {"text": [f"row {i}" for i in range(10)], "y": [0, 1] * 5}
    part = datasets.Dataset.from_dict(rows, features)
    saved = datasets.DatasetDict({"train": part, "validation": part.select(range(4))})
    saved.save_to_disk(tmp_path / "mail")
    data = Data(task="mail", user=describe_user_data(dataset=str(tmp_path / "mail"), label="y"))
    task = resolve_task(data)
    assert task.labels == ("spam", "ham")  # the dataset's order, not the alphabet's
    assert task.read_rows(data, "dev")["label"].to_pylist() == [0, 1, 0, 1]
    assert data.user is not None
    assert (data.user.train, data.user.dev, data.user.test) == ("train", "validation", None)
    with pytest.raises(UserError, match="test: .*mail has no split 'test'; it has train, valid"):
        describe_user_data(dataset=str(tmp_path / "mail"), test="test")


def test_files_in_a_folder_are_a_dataset_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mail").mkdir()
    write_rows(tmp_path / "mail" / "train.csv", labelled(*"abababab"))
    write_rows(tmp_path / "mail" / "test.csv", labelled(*"ab"))
    user = describe_user_data(dataset=str(tmp_path / "mail"), test="test", dev_share=0.25)
    data = Data(task="mail", user=user)
    counts = [
        resolve_task(data).read_rows(data, part).num_rows for part in ("train", "dev", "test")
    ]
    assert counts == [6, 2, 2]


def test_a_dataset_that_can_not_be_had_is_one_line() -> None:
    with pytest.raises(UserError) as error:
        describe_user_data(dataset="nobody/nothing")
    assert str(error.value).startswith("dataset: `datasets` does not give 'nobody/nothing' (")
    assert len(str(error.value).splitlines()) == 1
