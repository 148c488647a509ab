"""Every task on its real rows, with a small real encoder: a few steps and an evaluation."""

import math
from pathlib import Path

import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import registry
from bermo_ray.training.check import check_trials
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial
from tests.conftest import SHARED

pytestmark = pytest.mark.slow

# Rows of train and dev as SOURCES.md has them.
TASKS = {
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "mnli": (9999, 9815),
    "qnli": (19475, 5463),
    "rte": (2490, 277),
    "stsb": (5749, 1500),
    "cola": (8551, 1043),
    "senteval/bigram_shift": (4499, 1000),
    "senteval/past_present": (4486, 1000),
    "senteval/subj_number": (4500, 1000),
    "senteval/coordination_inversion": (4499, 1000),
    "senteval_rebuilt/sentence_length": (3812, 800),
    "senteval_rebuilt/word_content": (2900, 500),
    "senteval_rebuilt/tree_depth": (1445, 300),
    "senteval_rebuilt/top_constituents": (1495, 200),
    "conll2003": (14041, 3250),
    "wikiann/en": (20000, 10000),
    "wikiann/sw": (1000, 1000),
    "wikiann/am": (100, 100),
    "squad": (11877, 10570),
    "wikitext103": (9742, 3760),
}
CLASSES = {"senteval_rebuilt/word_content": 50, "senteval_rebuilt/top_constituents": 11}


@pytest.fixture(scope="module")
def minilm() -> str:
    folder = SHARED / "models" / "all-MiniLM-L6-v2"
    if not folder.is_dir():
        pytest.skip("no ../shared/models beside the project")
    return str(folder)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_loads_encodes_trains_and_evaluates(
    name: str, minilm: str, shared_data: str
) -> None:
    length = 192 if name == "squad" else 64
    data = Data(task=name, data_dir=shared_data, train_rows=8, dev_rows=5, max_length=length)
    task = registry.resolve_task(data)
    counts = tuple(task.read_rows(data, part).num_rows for part in ("train", task.dev))
    assert counts == TASKS[name]
    assert len(task.labels) == CLASSES.get(name, len(registry.get_task(name).labels))
    trial = Trial(
        data=data,
        backbone=minilm,
        optimizer=Optimizer(learning_rate=5e-4),
        epochs=3,
        batch_size=4,
    )
    check_trials([trial])
    first, *_, last = run_locally(trial, threads=2)
    assert math.isfinite(last.loss)
    assert last.train_loss < first.train_loss
    on_test = [f"test_{metric}" for metric in task.extra_metrics if task.test is not None]
    assert set(last.other_metrics) == {*task.extra_metrics, *on_test}
    assert math.isfinite(last.metric_test) == (task.test is not None)


def test_a_part_that_is_not_there_is_said(minilm: str, shared_data: str) -> None:
    """WikiText-2's training text is not among the data; nothing else stands in for it."""
    trial = Trial(data=Data(task="wikitext2", data_dir=shared_data), backbone=minilm)
    with pytest.raises(UserError, match=r"no file .*wikitext-2-raw/train.parquet \(nor "):
        check_trials([trial])


def test_original_conll_text_is_the_parquets_rows(shared_data: str, tmp_path: Path) -> None:
    """Parquet written out as CoNLL text reads back as the same words and tags."""
    from bermo_ray.tasks import ner

    task, data = registry.get_task("conll2003"), Data(task="conll2003", data_dir=shared_data)
    rows = task.read_rows(data, "validation")
    sentences = [zip(r["words"], r["tags"], strict=True) for r in rows.to_pylist()]
    lines = ["\n".join(f"{word} X {ner.CONLL_TAGS[tag]}" for word, tag in s) for s in sentences]
    (tmp_path / "conll2003").mkdir()
    (tmp_path / "conll2003" / "valid.txt").write_text("\n\n".join(lines) + "\n")
    again = task.read_rows(data.model_copy(update={"data_dir": str(tmp_path)}), "validation")
    assert again.to_pylist() == rows.to_pylist()
