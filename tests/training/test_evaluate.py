"""Predictions and metrics of a split, by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
from bermo_ray.training.evaluate import evaluate
from bermo_ray.training.model import load_trained
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial
from tests.support.questions import encode_questions

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
    assert table.column_names == ["row", "gold", "predicted", "right"]
    assert table["right"].to_pylist() == [True, False]


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
        data=Data(task=name, train_rows=40, dev_rows=31, dev_half="second"),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=1e-3),
        epochs=1,
    )
    last = run_locally(trial, tmp_path / "c")[-1]
    rows = pq.read_table(tmp_path / "c" / "predictions.parquet")
    assert rows.num_rows == 31
    assert len(set(rows["row"].to_pylist())) == 31
    assert max(rows["row"].to_pylist()) > 31  # numbers of the whole dev set
    task = registry.get_task(name)
    again = METRICS[task.metric](
        rows["predicted"].to_pylist(), rows["gold"].to_pylist(), task.labels
    )
    assert again == pytest.approx(last.metric)
    assert set(last.other_metrics) == set(task.extra_metrics)


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
