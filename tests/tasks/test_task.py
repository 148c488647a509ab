"""Which rows of a split a trial takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import registry
from bermo_ray.tasks.sources import MissingPartError
from bermo_ray.trial import Data, Trial
from tests.support.task_files import SENTEVAL, data_in, write_parquet, write_text


@pytest.fixture
def hundred(tmp_path: Path) -> Callable[..., Data]:
    for part in ("train", "validation"):
        columns = {"sentence": [str(i) for i in range(101)], "label": [i % 2 for i in range(101)]}
        write_parquet(tmp_path, f"glue/sst2/{part}.parquet", columns)
    return lambda **more: data_in(tmp_path, "sst2", **more)


def numbers(data: Data, split: Any, seed: int = 0) -> list[int]:
    return [
        int(t) for t in registry.get_task("sst2").take_rows(data, split, seed)["text"].to_pylist()
    ]


def test_subsets_by_count_and_share(hundred: Callable[..., Data]) -> None:
    assert numbers(hundred(), "train") == list(range(101))
    assert len(set(numbers(hundred(train_rows=30), "train"))) == 30
    assert numbers(hundred(train_rows=0.1), "train") == numbers(hundred(train_rows=10), "train")
    assert numbers(hundred(train_rows=500), "train") == list(range(101))
    assert numbers(hundred(dev_rows=0.05), "dev") == [0, 1, 2, 3, 4]
    # A larger subset of the same seed holds the smaller one.
    small, large = (numbers(hundred(train_rows=n), "train", 3) for n in (10, 20))
    assert large[:10] == small


def test_shots_are_rows_for_each_class_drawn_from_all_alike(hundred: Callable[..., Data]) -> None:
    draws = [numbers(hundred(shots=8), "train", seed) for seed in range(30)]
    assert all(len(set(draw)) == 16 for draw in draws)  # N·C with two classes
    assert draws[0] == numbers(hundred(shots=8), "train", 0) != draws[1]
    ones = [sum(n % 2 for n in draw) for draw in draws]
    assert len(set(ones)) > 3  # not stratified: the classes' shares vary
    assert abs(np.mean(ones) - 8) < 1
    with pytest.raises(UserError, match="data.shots: 200 rows wanted, train has 101"):
        numbers(hundred(shots=100), "train")


def test_dev_rows_are_the_first_whatever_chooses(hundred: Callable[..., Data]) -> None:
    for data in (hundred(dev_rows=5), hundred(dev_rows=5, whole_dev=True)):
        assert numbers(data, "dev", 7) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"train_rows": 1.5}, "train_rows: got 1.5, expected whole rows, or a share below 1"),
        ({"shots": 2, "train_rows": 5}, "train_rows says too how many rows"),
        ({"train_rows": 0}, "greater than 0"),
        ({"whole_dev": "yes"}, "data.whole_dev: got 'yes', expected a valid boolean"),
    ],
)
def test_bad_subsets_are_refused(more: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        Trial.from_dict({"data": {"task": "sst2"} | more})


@pytest.mark.parametrize(("task", "rows"), [("conll2003", 32), ("wikiann/en", 24)])
def test_shots_of_tagging_count_entity_types(tmp_path: Path, task: str, rows: int) -> None:
    columns = {"tokens": [["Paris"]] * 90, "ner_tags": [["B-LOC"]] * 90}
    write_parquet(tmp_path, f"{task}/train.parquet", columns)
    data = data_in(tmp_path, task, shots=8)
    assert registry.get_task(task).take_rows(data, "train", 0).num_rows == rows


TEST_PARTS = {
    "tense": "test", "senteval/past_present": "test", "senteval_rebuilt/tree_depth": "test",
    "conll2003": "test", "wikiann/en": "test", "wikitext2": "test", "wikitext103": "test",
    "text": "test", "sst2": None, "mnli": None, "stsb": None, "squad": None,
}  # fmt: skip


@pytest.mark.parametrize("name", TEST_PARTS)
def test_labelled_test_parts(name: str) -> None:
    task = registry.get_task(name)
    assert task.test == TEST_PARTS[name]
    if task.test is None:
        with pytest.raises(MissingPartError, match=f"task {name}: no test part with labels"):
            task.part_of("test")


def test_test_has_as_many_rows_as_dev(tmp_path: Path) -> None:
    task = registry.get_task("tense")
    assert task.take_rows(Data(), "test", 0).num_rows == 500
    few = task.take_rows(Data(dev_rows=30), "test", 0)["text"].to_pylist()
    assert len(few) == 30
    assert few == task.take_rows(Data(dev_rows=30), "test", 7)["text"].to_pylist()
    others = [task.take_rows(Data(), split, 0)["text"].to_pylist() for split in ("train", "dev")]
    assert not set(few) & {text for texts in others for text in texts}
    write_text(tmp_path, "senteval/past_present.txt", SENTEVAL)
    data, probe = data_in(tmp_path, "senteval/past_present"), "senteval/past_present"
    assert registry.get_task(probe).take_rows(data, "test", 0)["text"].to_pylist() == ["It ran ."]
