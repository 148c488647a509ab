"""A question whose answer is a span of its context."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F

from bermo_ray.tasks.encoded import OUTSIDE, EncodedRows
from bermo_ray.tasks.heads.base import (
    Collected,
    Columns,
    Gold,
    HeadKind,
    Logits,
    model_inputs,
    temperature_kl,
)
from bermo_ray.tasks.metrics import exact_match
from bermo_ray.tasks.row_check import RowCheck

if TYPE_CHECKING:
    from bermo_ray.tasks.task import Task

MAX_QUESTION_PIECES = 64  # or a third of the row: the context needs the rest
MAX_ANSWER_PIECES = 30  # a longer span is no answer
N_BEST = 20  # starts, ends and spans of a window that are looked at


class CharacterSpan(NamedTuple):
    """Some characters of a context, and how sure a window is of them."""

    score: float
    begin: int
    end: int


class Span(HeadKind):
    """Logits are two of ``[b, s]``, for the answer's first and last piece.

    A context too long for one row has several windows. Extras: ``starts`` and ``ends``, the
    characters of each piece in the context, or :data:`OUTSIDE`; ``contexts`` and ``answers``, kept
    at the first window of each question and null at the others.
    """

    name = "span"
    columns = ("text", "text_pair", "answers", "answer_starts")
    stock_class = "AutoModelForQuestionAnswering"
    gold_names = ("start_positions", "end_positions")
    extra_names = ("starts", "ends", "contexts", "answers")
    per_piece = True
    gold_are_positions = True
    keeps_row_count = False
    min_length = 24  # a question and some of its context

    def check(self, check: RowCheck, labels: tuple[str, ...]) -> pa.Table:
        """Every answer stands in its context where the row says."""
        columns = (check.rows[c].to_pylist() for c in ("text_pair", "answers", "answer_starts"))
        for row, (context, answers, starts) in enumerate(zip(*columns, strict=True)):
            if problem := _find_answer_problem(context, answers or [], starts or []):
                raise check.error("answers", row, problem)
        return check.rows

    def encode_block(
        self, task: "Task", rows: pa.Table, first: int, tokenizer: Any, max_length: int
    ) -> Columns:
        """Question and context; windows of one context share a third of their pieces."""
        contexts, answers = rows["text_pair"].to_pylist(), rows["answers"].to_pylist()
        coded = tokenizer(
            _cut_questions(rows["text"].to_pylist(), tokenizer, max_length),
            contexts,
            truncation="only_second",
            max_length=max_length,
            stride=max_length // 3,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        source = coded["overflow_to_sample_mapping"]  # the row of each window
        answer_starts = rows["answer_starts"].to_pylist()
        windows = [
            _encode_window(coded, window, answers[row][0], answer_starts[row][0], tokenizer)
            for window, row in enumerate(source)
        ]
        names = ("starts", "ends", *self.gold_names)
        columns = dict(zip(names, zip(*windows, strict=True), strict=True))
        is_first = [i == 0 or source[i - 1] != row for i, row in enumerate(source)]
        for name, texts in (("contexts", contexts), ("answers", answers)):
            pairs = zip(source, is_first, strict=True)
            columns[name] = tuple(texts[row] if kept else None for row, kept in pairs)
        return model_inputs(coded) | columns | {"row": first + np.array(source)}

    def logits(self, output: Any, attention_mask: torch.Tensor | None = None) -> Logits:
        """Start and end. Their softmax runs over pieces: with the mask, padding gets no share of
        it, so that a row's loss does not depend on what it is batched with."""
        both = (output["start_logits"].float(), output["end_logits"].float())
        if attention_mask is None:
            return both
        padding = attention_mask == 0
        return tuple(side.masked_fill(padding, torch.finfo(side.dtype).min) for side in both)

    def loss(self, logits: Logits, gold: Gold) -> torch.Tensor:
        """The mean of start's and end's cross entropy."""
        start, end = (gold[name] for name in self.gold_names)
        return (F.cross_entropy(logits[0], start) + F.cross_entropy(logits[1], end)) / 2

    def predict(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[list[CharacterSpan]]:
        return best_spans(data, rows, logits[0].cpu(), logits[1].cpu())

    def collect(self, data: EncodedRows, predictions: list[Any]) -> Collected:
        """For each question the text of the best span of all its windows; '' where there is
        none."""
        numbers = data.row_numbers
        contexts, answers = (cast("pa.Array", data.extras[n]) for n in ("contexts", "answers"))
        first = [i for i in range(len(numbers)) if i == 0 or numbers[i] != numbers[i - 1]]
        predicted = []
        for begin, end in zip(first, [*first[1:], len(numbers)], strict=True):
            spans = [span for window in predictions[begin:end] for span in window]
            best = max(spans, default=CharacterSpan(0.0, 0, 0))
            predicted.append(contexts[begin].as_py()[best.begin : best.end])
        return numbers[first].tolist(), predicted, answers.take(first).to_pylist()

    def is_right(self, predicted: list[str], gold: list[list[str]]) -> list[bool]:
        return [exact_match([p], [g]) == 1.0 for p, g in zip(predicted, gold, strict=True)]

    def teacher_width(self, labels: tuple[str, ...]) -> int:
        return 2

    def pack_logits(self, logits: Logits) -> torch.Tensor:
        return torch.stack(logits, -1)

    def unpack_logits(self, packed: torch.Tensor) -> Logits:
        return packed.unbind(-1)

    def distillation_loss(
        self,
        student: Logits,
        teacher: Logits,
        gold: Gold,
        padding: torch.Tensor | None,
        temperature: float,
    ) -> torch.Tensor:
        """The mean of start's and end's divergence, over the row's pieces."""
        sides = zip(student, teacher, strict=True)
        return torch.stack(
            [temperature_kl(s, t, temperature, padding=padding) for s, t in sides]
        ).mean()


def best_spans(
    data: EncodedRows, rows: Sequence[int] | np.ndarray, start: torch.Tensor, end: torch.Tensor
) -> list[list[CharacterSpan]]:
    """The best spans of each window, best first: of the :data:`N_BEST` likeliest starts and ends,
    those pairs that lie in the context, in order, and are not too long.

    ``start``, ``end``: logits ``[b, s]``.
    """
    rows, width = np.asarray(rows), start.shape[1]
    first_character, last_character = (
        torch.from_numpy(data.extras[name].padded(rows, width, OUTSIDE, data.pad_left))
        for name in ("starts", "ends")
    )
    k = min(N_BEST, width)
    outside = first_character < 0
    start_score, start_piece = start.masked_fill(outside, -torch.inf).topk(k)  # [b, k]
    end_score, end_piece = end.masked_fill(outside, -torch.inf).topk(k)
    gap = end_piece[:, None, :] - start_piece[:, :, None]  # [b, k, k]
    score = start_score[:, :, None] + end_score[:, None, :]
    score = score.masked_fill((gap < 0) | (gap >= MAX_ANSWER_PIECES), -torch.inf).flatten(1)
    best, pair = score.topk(min(N_BEST, score.shape[1]))
    begin = first_character.gather(1, start_piece.gather(1, pair // k))
    finish = last_character.gather(1, end_piece.gather(1, pair % k))
    return [
        [CharacterSpan(*span) for span in zip(*columns, strict=True) if span[0] > -np.inf]
        for columns in zip(best.tolist(), begin.tolist(), finish.tolist(), strict=True)
    ]


def _find_answer_problem(context: str, answers: list[str], starts: list[int]) -> str | None:
    if not answers or not starts or len(answers) != len(starts):
        return f"{len(answers)} answers and {len(starts)} places"
    for answer, start in zip(answers, starts, strict=True):
        if not answer or start is None or start < 0:
            return f"{answer!r} at {start} is no answer"
        if context[start : start + len(answer)] != answer:
            return f"{answer!r} is not at {start} in its context"
    return None


def _cut_questions(questions: list[str], tokenizer: Any, max_length: int) -> list[str]:
    """The questions, cut to a length that leaves room for their contexts."""
    most = min(MAX_QUESTION_PIECES, max_length // 3)
    coded = tokenizer(questions, add_special_tokens=False, return_offsets_mapping=True)
    return [
        text[: offsets[most][0]] if len(offsets) > most else text
        for text, offsets in zip(questions, coded["offset_mapping"], strict=True)
    ]


def _encode_window(
    coded: Any, window: int, answer: str, answer_start: int, tokenizer: Any
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """First and last character of each piece in the context, and the answer's first and last
    piece."""
    in_context = np.array([side == 1 for side in coded.sequence_ids(window)])
    offsets = np.array(coded["offset_mapping"][window])
    offsets = np.where(in_context[:, None], offsets, OUTSIDE)  # [s, 2]
    no_answer = _no_answer_piece(coded["input_ids"][window], tokenizer)
    end = answer_start + len(answer)
    return offsets[:, 0], offsets[:, 1], *_answer_pieces(offsets, answer_start, end, no_answer)


def _no_answer_piece(pieces: list[int], tokenizer: Any) -> int:
    """The piece that windows without the answer point at: [CLS], where there is one."""
    return pieces.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in pieces else 0


def _answer_pieces(offsets: np.ndarray, start: int, end: int, no_answer: int) -> tuple[int, int]:
    """First and last piece of the characters start..end, or ``no_answer`` twice where a window does
    not hold all of them. ``offsets``: characters of each piece, ``[s, 2]``."""
    first, last = offsets[:, 0], offsets[:, 1]
    pieces = np.flatnonzero((first < end) & (last > start) & (first >= 0))
    complete = len(pieces) and first[pieces[0]] <= start and last[pieces[-1]] >= end
    return (int(pieces[0]), int(pieces[-1])) if complete else (no_answer, no_answer)


SPAN = Span()
