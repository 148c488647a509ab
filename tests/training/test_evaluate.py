"""Predictions and metrics of a split, by hand."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoded import IGNORED
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.training.check import check_trials
from bermo_ray.training.evaluate import Evaluation, evaluate
from bermo_ray.training.model import load_trained
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial
from tests.support.questions import encode_questions
from tests.support.runs import small_trial

CPU = torch.device("cpu")


class Constant(nn.Module):
    """Answers each row by its pieces, whatever the batch."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return self.answer(input_ids)


def test_a_question_takes_the_best_of_its_windows() -> None:
    data = encode_questions(["the man"], ["old dog", "dog"], length=20)
    assert len(data) > 2
    tokenizer = backbone.load_tokenizer("embedded")
    dog, man = tokenizer.convert_tokens_to_ids(["dog", "man"])

    def answer(ids: torch.Tensor) -> Any:
        # Sure of "man" where a window has it, else of "dog", else of nothing.
        score = (ids == man) * 9.0 + (ids == dog) * 4.0
        return {"start_logits": score, "end_logits": score}

    evaluation = evaluate(Constant(answer), data, 8, CPU)
    assert evaluation.row_numbers == [0, 1]
    assert evaluation.predicted == ["man", "man"]
    assert evaluation.gold == [["the man"], ["old dog", "dog"]]
    assert evaluation.metric == 0.5  # articles do not count
    assert evaluation.other_metrics == {"exact_match": 0.5}
    table = evaluation.table()
    assert table.column_names == ["row", "gold", "predicted", "right", "verifies"]
    assert table["right"].to_pylist() == [True, False]
    assert sorted(table["verifies"].to_pylist()) == [False, True]


def test_loss_counts_labelled_pieces_and_perplexity_follows() -> None:
    tokenizer, task = backbone.load_tokenizer("embedded"), registry.get_task("masked_words")
    lines = ["the dog slept .", "the old dog chased the young cat in the garden with a man ."]
    data = encode_rows(task, pa.table({"text": lines}), tokenizer, 64)
    size = tokenizer.vocab_size

    def answer(ids: torch.Tensor) -> Any:
        logits = torch.zeros(*ids.shape, size)
        logits[..., 7] = ids.shape[1]  # another loss for another length
        return {"logits": logits}

    one_by_one = evaluate(Constant(answer), data, 1, CPU)
    expected = 0.0
    for row in range(2):
        labels = data.gold["labels"][row]
        logits = torch.zeros(size)
        logits[7] = len(labels)
        expected -= sum(float(logits.log_softmax(0)[t]) for t in labels if t != IGNORED)
    expected /= data.loss_counts.sum()
    assert data.loss_counts.tolist() == [1, 2]
    assert one_by_one.loss == pytest.approx(expected, rel=1e-5)
    assert one_by_one.other_metrics["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
    table = one_by_one.table()
    assert [len(row) for row in table["predicted"].to_pylist()] == [1, 2]
    assert table["predicted"].to_pylist() == [[7], [7, 7]]


@pytest.mark.parametrize("name", ["tense", "similarity", "entities", "answer_span", "masked_words"])
def test_predictions_are_kept_and_give_the_metric_again(
    name: str, tiny: str, tmp_path: Path
) -> None:
    from bermo_ray.tasks.metrics import METRICS

    trial = Trial(
        data=Data(task=name, train_rows=40, dev_rows=31),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=1e-3),
        epochs=2,
    )
    before, last = run_locally(trial, tmp_path / "c")
    rows = pq.read_table(tmp_path / "c" / "predictions.parquet")
    assert rows["row"].to_pylist() == list(range(31))
    assert rows["verifies"].to_pylist().count(True) == 15
    task = registry.get_task(name)

    def metric_of(some: pa.Table) -> Any:
        predicted, gold = (some[column].to_pylist() for column in ("predicted", "gold"))
        return pytest.approx(METRICS[task.metric](predicted, gold, task.labels), nan_ok=True)

    assert last.metric == metric_of(rows)
    assert last.metric_verification == metric_of(rows.filter(rows["verifies"]))
    assert last.metric_selection == metric_of(rows.filter(pc.invert(rows["verifies"])))
    on_test = {f"test_{name}" for name in task.extra_metrics}
    assert set(last.other_metrics) == {*task.extra_metrics, *on_test}
    assert set(before.other_metrics) == set(task.extra_metrics)
    assert before.finite("metric_selection", "metric_verification")  # at every evaluation


def test_halves_by_hand() -> None:
    # Of eight rows and classes 0, 0, 0, 0, 1, 1, 2, 2 either half has two, one and one.
    gold = [0, 0, 0, 0, 1, 1, 2, 2]
    task = replace(registry.get_task("tense"), labels=("a", "b", "c"))
    found = Evaluation(task, 0.5, {}, 0.1, 0.5, list(range(8)), [0] * 4 + [2] * 4, gold)
    assert (found.metric_selection, found.metric_verification) == (0.75, 0.75)
    verifies = found.table()["verifies"].to_pylist()
    assert sorted(g for g, is_one in zip(gold, verifies, strict=True) if is_one) == [0, 0, 1, 2]
    # All rows choose and verify; their metric is measured again.
    both = replace(found, whole_dev=True)
    assert (both.metric_selection, both.metric_verification) == (0.75, 0.75)
    assert both.table()["verifies"].to_pylist() == [True] * 8
    # A row that is wrong in one half alone.
    chooses = verifies.index(False)
    worse = replace(
        found, predicted=[1 if i == chooses else p for i, p in enumerate(found.predicted)]
    )
    assert (worse.metric_selection, worse.metric_verification) == (0.5, 0.75)
    both = replace(worse, whole_dev=True)
    assert (both.metric_selection, both.metric_verification) == (0.625, 0.625)


def test_a_single_row_chooses_and_none_verifies() -> None:
    one = Evaluation(registry.get_task("tense"), 1.0, {}, 0.1, 1.0, [0], [1], [1])
    assert one.metric_selection == 1.0
    assert math.isnan(one.metric_verification)
    assert one.table()["verifies"].to_pylist() == [False]
    assert replace(one, whole_dev=True).metric_verification == 1.0


def test_with_whole_dev_all_rows_choose_and_verify(tiny: str, tmp_path: Path) -> None:
    halves = small_trial(tiny, pruning=None, epochs=1)
    all_rows = halves.replace(data={"whole_dev": True})
    reports = run_locally(all_rows, tmp_path / "c")
    for report in reports:
        assert report.metric_selection == report.metric_verification == report.metric
    table = pq.read_table(tmp_path / "c" / "predictions.parquet")
    assert table["verifies"].to_pylist() == [True] * 51
    split = run_locally(halves)
    assert [r.metric for r in split] == [r.metric for r in reports]  # trains the same
    for report in split:  # 51 rows: 26 choose, 25 verify
        right = 26 * report.metric_selection + 25 * report.metric_verification
        assert right == pytest.approx(51 * report.metric)


def write_senteval(folder: Path, rows: int, parts: tuple[str, ...] = ("tr", "va", "te")) -> None:
    """The test rows alone have the other class for the same words."""
    folder.mkdir(exist_ok=True)
    lines = []
    for part in parts:
        for i in range(rows):
            past = (i % 2 == 0) != (part == "te")
            text = ("the dog slept .", "a cat saw the man .")[i % 2]
            lines.append(f"{part}\t{'PAST' if past else 'PRES'}\t{text}\n")
    (folder / "past_present.txt").write_text("".join(lines))


def senteval_trial(tiny: str, folder: Path) -> Trial:
    return Trial(
        data=Data(task="senteval/past_present", data_dir=str(folder)),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=3e-3),
        epochs=8,
        batch_size=8,
    )


def test_the_test_split_is_measured_at_the_end(tiny: str, tmp_path: Path) -> None:
    write_senteval(tmp_path / "senteval", rows=40)
    trial = senteval_trial(tiny, tmp_path)
    check_trials([trial])
    *before, last = run_locally(trial)
    assert all(math.isnan(report.metric_test) for report in before)
    assert (last.metric, last.metric_test) == (1.0, 0.0)


def test_a_task_whose_test_split_is_not_there_goes_without(tiny: str, tmp_path: Path) -> None:
    write_senteval(tmp_path / "senteval", rows=8, parts=("tr", "va"))
    trial = senteval_trial(tiny, tmp_path).replace(epochs=1)
    check_trials([trial])
    assert math.isnan(run_locally(trial)[-1].metric_test)


def test_a_test_split_with_a_wrong_row_is_said_before_training(tiny: str, tmp_path: Path) -> None:
    write_senteval(tmp_path / "senteval", rows=8)
    file = tmp_path / "senteval" / "past_present.txt"
    file.write_text(file.read_text() + "te\tFUTURE\tthe dog will sleep .\n")
    with pytest.raises(UserError, match="column 'label', row 8: unknown label 'FUTURE'"):
        check_trials([senteval_trial(tiny, tmp_path)])


def test_the_embedded_test_split_is_that_of_the_generator(tiny: str, tmp_path: Path) -> None:
    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=60),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=3e-3),
        epochs=2,
        batch_size=16,
    )
    last = run_locally(trial, tmp_path / "c")[-1]
    trained = load_trained(tmp_path / "c")
    rows = trained.task.take_rows(trial.data, "test", 0)
    data = encode_rows(trained.task, rows, backbone.load_tokenizer(tiny), 128)
    assert last.metric_test == evaluate(trained.model.network, data, 16, CPU).metric
    assert rows.num_rows == 60
    assert last.metric_test * 60 == pytest.approx(round(last.metric_test * 60))


def test_other_dev_sets_are_measured_at_the_end(tiny: str, tmp_path: Path) -> None:
    folder = tmp_path / "glue" / "mnli"
    folder.mkdir(parents=True)
    columns = {"premise": ["the dog"] * 12, "hypothesis": ["a cat"] * 12, "label": [0, 1, 2] * 4}
    for part in ("train", "validation_matched", "validation_mismatched"):
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    trial = Trial(
        data=Data(task="mnli", data_dir=str(tmp_path)),
        backbone=tiny,
        epochs=1,
        evaluations_per_epoch=2,
        batch_size=4,
    )
    first, last = run_locally(trial)
    assert first.other_metrics == {}
    assert math.isnan(last.metric_test)  # GLUE hides the labels of its test parts
    assert last.other_metrics == {"validation_mismatched": pytest.approx(1 / 3)}
    (folder / "validation_mismatched.parquet").unlink()
    assert run_locally(trial)[-1].other_metrics == {}
