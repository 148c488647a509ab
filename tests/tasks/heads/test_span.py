"""Spans of a context, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.heads import SPAN, span
from bermo_ray.tasks.heads.span import best_spans
from tests.support.questions import CONTEXT, encode_questions


def pointing(data: EncodedRows, *answers: tuple[str, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that point at these texts, one window."""
    start, end = torch.zeros(1, int(data.lengths[0])), torch.zeros(1, int(data.lengths[0]))
    for text, score in answers:
        begin = CONTEXT.index(text)
        start[0, int(np.flatnonzero(data.extras["starts"][0] == begin)[0])] = score
        end[0, int(np.flatnonzero(data.extras["ends"][0] == begin + len(text))[0])] = score
    return start, end


def texts(data: EncodedRows, start: torch.Tensor, end: torch.Tensor) -> list[str]:
    return [CONTEXT[s.begin : s.end] for s in best_spans(data, [0], start, end)[0]]


def test_the_best_spans_come_first_and_lie_in_the_context() -> None:
    data = encode_questions(["the man"])
    start, end = pointing(data, ("old dog", 5.0), ("the man", 4.0))
    start[0, 1] = end[0, 2] = 50.0  # of the question
    spans = best_spans(data, [0], start, end)[0]
    assert CONTEXT[spans[0].begin : spans[0].end] == "old dog"
    assert spans[0].score == 10.0
    # Start of the one and end of the other are in order: 5 + 4; the other way round is no span.
    assert texts(data, start, end)[1].startswith("old dog chased")
    assert texts(data, start, end)[1].endswith("the man")
    assert [s.score for s in spans] == sorted((s.score for s in spans), reverse=True)
    assert all(s.begin < s.end for s in spans)


def test_n_best_is_what_looking_at_every_span_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span, "N_BEST", 64)
    monkeypatch.setattr(span, "MAX_ANSWER_PIECES", 4)
    torch.manual_seed(0)
    data = encode_questions(["the man"])
    start, end = torch.randn(2, 1, int(data.lengths[0]))
    begin, finish = data.extras["starts"][0].tolist(), data.extras["ends"][0].tolist()
    spans = [
        (float(start[0, i] + end[0, j]), begin[i], finish[j])
        for i in range(start.shape[1])
        for j in range(i, min(i + 4, start.shape[1]))
        if begin[i] >= 0 and begin[j] >= 0
    ]
    expected = sorted(spans, reverse=True)[:64]
    best = best_spans(data, [0], start, end)[0]
    assert [s[1:] for s in best] == [s[1:] for s in expected]
    assert [s.score for s in best] == pytest.approx([s[0] for s in expected])


def test_padding_has_no_share_of_the_softmax() -> None:
    output = {"start_logits": torch.tensor([[1.0, 2.0, 9.0]])}
    output["end_logits"] = torch.tensor([[0.0, 3.0, 9.0]])
    gold = {"start_positions": torch.tensor([0]), "end_positions": torch.tensor([1])}
    loss = SPAN.loss(SPAN.logits(output, torch.tensor([[1, 1, 0]])), gold)
    expected = (np.log(1 + np.exp(1.0)) + np.log(1 + np.exp(-3.0))) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert SPAN.loss(SPAN.logits(output), gold).item() > 5


def test_a_question_is_right_when_one_of_its_answers_matches() -> None:
    assert SPAN.is_right(["The man", "cat"], [["dog", "man"], ["a dog"]]) == [True, False]


def test_positions_move_with_padding_in_front() -> None:
    data = encode_questions(["the man"], ["old dog"], length=20)
    left = replace(data, pad_left=True)
    rows = [0, len(data) - 1]
    assert data.lengths[rows[0]] > data.lengths[rows[1]]
    for name in SPAN.gold_names:
        behind, front = data.batch(rows)[name], left.batch(rows)[name]
        shift = data.lengths[rows[0]] - data.lengths[rows[1]]
        assert (front - behind).tolist() == [0, shift]
