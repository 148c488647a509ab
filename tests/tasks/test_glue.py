from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import registry
from bermo_ray.tasks.heads import REGRESSION
from bermo_ray.training.check import check_trials
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial


def write(folder: Path, name: str, split: str, columns: dict[str, object]) -> None:
    file = folder / "glue" / name / f"{split}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, count in (("train", 20), ("validation", 7)):
        texts = [f"{split} {i}" for i in range(count)]
        labels = [i % 2 for i in range(count)]
        write(tmp_path, "sst2", split, {"sentence": texts, "label": labels, "idx": range(count)})
        pair = {"sentence1": texts, "sentence2": texts[::-1], "label": [i / 4 for i in labels]}
        write(tmp_path, "stsb", split, pair)
    return tmp_path


def data(folder: Path, task: str = "sst2", **settings: object) -> Data:
    return Data.model_validate({"task": task, "data_dir": str(folder)} | settings)


def test_columns_get_the_names_of_the_head_kind(folder: Path) -> None:
    single, pair = registry.get_task("sst2"), registry.get_task("stsb")
    table = single.take_rows(data(folder), "dev", 0)
    assert table.column_names == ["text", "label"]
    assert table["text"].to_pylist() == [f"validation {i}" for i in range(7)]
    table = pair.take_rows(data(folder, "stsb"), "train", 0)
    assert table.column_names == ["text", "text_pair", "label"]
    assert table.schema.field("label").type == pa.float32()
    assert pair.head is REGRESSION


def test_a_subset_of_train_is_by_seed_and_of_dev_the_first_rows(folder: Path) -> None:
    task, some = registry.get_task("sst2"), data(folder, train_rows=6, dev_rows=3)
    first, again, other = (task.take_rows(some, "train", s)["text"].to_pylist() for s in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 6
    dev = task.take_rows(some, "dev", 5)["text"].to_pylist()
    assert dev == ["validation 0", "validation 1", "validation 2"]


def test_accuracy_judges_paraphrases_with_f1_beside_it() -> None:
    for name in ("mrpc", "qqp"):
        task = registry.get_task(name)
        assert (task.metric, task.extra_metrics) == ("accuracy", ("f1",))


def test_the_variable_stands_in_for_data_dir(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERMO_DATA", str(folder))
    assert registry.get_task("sst2").take_rows(Data(task="sst2"), "dev", 0).num_rows == 7


def test_bad_data_is_one_line(folder: Path) -> None:
    def problem(trial: Trial) -> str:
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            check_trials([trial])
        return str(caught.value)

    assert "no data directory" in problem(Trial(data=data(folder / "nowhere")))
    write(folder, "mrpc", "train", {"sentence1": ["a"], "sentence2": ["b"], "label": [1]})
    assert "no file" in problem(Trial(data=data(folder, "mrpc")))
    write(folder, "cola", "train", {"text": ["a"], "label": [0]})
    write(folder, "cola", "validation", {"sentence": ["a"], "label": [0]})
    assert "no column 'sentence'" in problem(Trial(data=data(folder, "cola")))
    write(folder, "rte", "train", {"sentence1": ["a"], "sentence2": ["b"], "label": [-1]})
    write(folder, "rte", "validation", {"sentence1": ["a"], "sentence2": ["b"], "label": [1]})
    assert "row 0: label -1 is not one of 0..1" in problem(Trial(data=data(folder, "rte")))


def test_rows_longer_than_the_encoder_has_positions_are_refused() -> None:
    with pytest.raises(UserError, match="max_length: got 129, embedded has 128 positions"):
        check_trials([Trial(data=Data(max_length=129))])


def test_real_rows_train(tiny: str, shared_data: str) -> None:
    trial = Trial(
        data=Data(task="sst2", data_dir=shared_data, train_rows=64, dev_rows=33, max_length=64),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=1e-3),
        epochs=1,
    )
    check_trials([trial])
    last = run_locally(trial)[-1]
    assert last.metric * 33 == pytest.approx(round(last.metric * 33))
    assert last.step == 2
