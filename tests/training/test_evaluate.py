"""Predictions and metrics of a split, by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from bermo_ray.models import backbone
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoded import IGNORED
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.training.evaluate import evaluate
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
    assert last.other_metrics == {"validation_mismatched": pytest.approx(1 / 3)}
    (folder / "validation_mismatched.parquet").unlink()
    assert run_locally(trial)[-1].other_metrics == {}
