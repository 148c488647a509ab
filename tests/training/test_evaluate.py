"""Predictions and metrics of a whole split, by hand."""

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
from bermo_ray.tasks.encoded import IGNORED, Encoded
from bermo_ray.tasks.encoding import encode
from bermo_ray.training import evaluate as module
from bermo_ray.training.evaluate import best_spans, evaluate
from bermo_ray.training.trainer import run_locally
from bermo_ray.trial import Data, Optimizer, Trial

CPU = torch.device("cpu")
CONTEXT = "the old dog chased the young cat in the garden . the man slept ."


def asked(*answers: list[str], context: str = CONTEXT, length: int = 64) -> Encoded:
    rows = pa.table(
        {
            "text": ["who slept ?"] * len(answers),
            "text_pair": [context] * len(answers),
            "answers": list(answers),
            "answer_starts": [[context.index(a) for a in texts] for texts in answers],
        }
    )
    return encode(registry.get("answer_span"), rows, backbone.tokenizer("embedded"), length)


def pointing(data: Encoded, *answers: tuple[str, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that point at these texts, one window."""
    assert data.answers
    start, end = torch.zeros(1, int(data.lengths[0])), torch.zeros(1, int(data.lengths[0]))
    for text, score in answers:
        place = CONTEXT.index(text)
        start[0, int(np.flatnonzero(data.answers.starts[0] == place)[0])] = score
        end[0, int(np.flatnonzero(data.answers.ends[0] == place + len(text))[0])] = score
    return start, end


def texts(data: Encoded, start: torch.Tensor, end: torch.Tensor) -> list[str]:
    return [CONTEXT[s.begin : s.end] for s in best_spans(data, [0], start, end)[0]]


def test_the_best_spans_come_first_and_lie_in_the_context() -> None:
    data = asked(["the man"])
    start, end = pointing(data, ("old dog", 5.0), ("the man", 4.0))
    start[0, 1] = end[0, 2] = 50.0  # of the question
    found = best_spans(data, [0], start, end)[0]
    assert CONTEXT[found[0].begin : found[0].end] == "old dog"
    assert found[0].score == 10.0
    # Start of the one and end of the other are in order: 5 + 4; the other way round is no span.
    assert texts(data, start, end)[1].startswith("old dog chased")
    assert texts(data, start, end)[1].endswith("the man")
    assert [s.score for s in found] == sorted((s.score for s in found), reverse=True)
    assert all(s.begin < s.end for s in found)


def test_n_best_is_what_looking_at_every_span_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_BEST", 64)
    monkeypatch.setattr(module, "LONGEST_ANSWER", 4)
    torch.manual_seed(0)
    data = asked(["the man"])
    assert data.answers
    start, end = torch.randn(2, 1, int(data.lengths[0]))
    begin, finish = data.answers.starts[0].tolist(), data.answers.ends[0].tolist()
    spans = [
        (float(start[0, i] + end[0, j]), begin[i], finish[j])
        for i in range(start.shape[1])
        for j in range(i, min(i + 4, start.shape[1]))
        if begin[i] >= 0 and begin[j] >= 0
    ]
    expected = sorted(spans, reverse=True)[:64]
    found = best_spans(data, [0], start, end)[0]
    assert [s[1:] for s in found] == [s[1:] for s in expected]
    assert [s.score for s in found] == pytest.approx([s[0] for s in expected])


class Constant(nn.Module):
    """Answers each row by its pieces, whatever the batch."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return self.answer(input_ids)


def test_a_question_takes_the_best_of_its_windows() -> None:
    data = asked(["the man"], ["old dog", "dog"], length=20)
    assert len(data) > 2
    tokenizer = backbone.tokenizer("embedded")
    dog, man = tokenizer.convert_tokens_to_ids(["dog", "man"])

    def answer(ids: torch.Tensor) -> Any:
        # Sure of "man" where a window has it, else of "dog", else of nothing.
        score = (ids == man) * 9.0 + (ids == dog) * 4.0
        return {"start_logits": score, "end_logits": score}

    found = evaluate(Constant(answer), data, 8, CPU)
    assert found.rows == [0, 1]
    assert found.predicted == ["man", "man"]
    assert found.target == [["the man"], ["old dog", "dog"]]
    assert found.metric == 0.5  # articles do not count
    assert found.others == {"exact_match": 0.5}
    assert found.table().column_names == ["row", "target", "predicted"]


def test_loss_counts_labelled_pieces_and_perplexity_follows() -> None:
    tokenizer, task = backbone.tokenizer("embedded"), registry.get("masked_words")
    lines = ["the dog slept .", "the old dog chased the young cat in the garden with a man ."]
    data = encode(task, pa.table({"text": lines}), tokenizer, 64)
    size = tokenizer.vocab_size

    def answer(ids: torch.Tensor) -> Any:
        logits = torch.zeros(*ids.shape, size)
        logits[..., 7] = ids.shape[1]  # another loss for another length
        return {"logits": logits}

    one_by_one = evaluate(Constant(answer), data, 1, CPU)
    expected = 0.0
    for row in range(2):
        labels = data.targets["labels"][row]
        logits = torch.zeros(size)
        logits[7] = len(labels)
        expected -= sum(float(logits.log_softmax(0)[t]) for t in labels if t != IGNORED)
    expected /= data.counts.sum()
    assert data.counts.tolist() == [1, 2]
    assert one_by_one.loss == pytest.approx(expected, rel=1e-5)
    assert one_by_one.others["perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
    kept = one_by_one.table()
    assert [len(row) for row in kept["predicted"].to_pylist()] == [1, 2]
    assert kept["predicted"].to_pylist() == [[7], [7, 7]]


@pytest.mark.parametrize("task", ["tense", "similarity", "entities", "answer_span", "masked_words"])
def test_predictions_are_kept_and_give_the_metric_again(
    task: str, tiny: str, tmp_path: Path
) -> None:
    from bermo_ray.tasks.metrics import METRICS

    trial = Trial(
        data=Data(task=task, train_rows=40, dev_rows=31, dev_half="second"),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=1e-3),
        epochs=1,
    )
    last = run_locally(trial, tmp_path / "c")[-1]
    rows = pq.read_table(tmp_path / "c" / "predictions.parquet")
    assert rows.num_rows == 31
    assert len(set(rows["row"].to_pylist())) == 31
    assert max(rows["row"].to_pylist()) > 31  # numbers of the whole dev set
    found = registry.get(task)
    again = METRICS[found.metric](
        rows["predicted"].to_pylist(), rows["target"].to_pylist(), found.labels
    )
    assert again == pytest.approx(last["metric"])
    assert set(last.get("others", {})) == set(found.also)


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
        evaluations=2,
        batch_size=4,
    )
    first, last = run_locally(trial)
    assert "others" not in first
    assert last["others"] == {"validation_mismatched": pytest.approx(1 / 3)}
    (folder / "validation_mismatched.parquet").unlink()
    assert "others" not in run_locally(trial)[-1]
