"""Which pieces are hidden, how they are shown, and when they are drawn anew."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.models import backbone
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoded import IGNORED, EncodedRows
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.tasks.heads.masked import PieceHider

LINE = "the old dog chased the young cat in the garden ."  # 11 pieces, of which 2 are hidden


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return backbone.load_tokenizer("embedded")


def encode(tokenizer: Any, *lines: str) -> EncodedRows:
    task = registry.get_task("masked_words")
    return encode_rows(task, pa.table({"text": list(lines)}), tokenizer, 32)


def batch(data: EncodedRows, rows: list[int], draw: tuple[int, int] | None = None) -> Any:
    """Pieces as shown, labels, and the pieces with nothing hidden, each ``[b, s]``."""
    tensors = data.batch(rows, draw)
    shown, labels = (tensors[name].numpy() for name in ("input_ids", "labels"))
    return shown, labels, np.where(labels == IGNORED, shown, labels)


def test_evaluation_hides_by_the_rows_number_alone(tokenizer: Any) -> None:
    first, second = (encode(tokenizer, *[LINE] * 20) for _ in range(2))
    (shown, labels, _), again = batch(first, list(range(20))), batch(second, list(range(20)))
    assert np.array_equal(shown, again[0])
    assert np.array_equal(labels, again[1])
    assert (labels != IGNORED).sum(axis=1).tolist() == [2] * 20  # 15 % of 11 pieces
    assert len({tuple(row) for row in labels}) > 10  # another row hides others


def test_fifteen_percent_are_hidden_as_80_10_10(tokenizer: Any) -> None:
    data = encode(tokenizer, *[LINE] * 4000)
    plain = tokenizer(LINE)["input_ids"]
    special = set(tokenizer.all_special_ids)
    for draw in (None, (0, 0)):
        shown, labels, original = batch(data, list(range(4000)), draw)
        assert (original == plain).all()
        hidden = labels != IGNORED
        assert hidden.sum() == 8000
        assert not hidden[:, [0, -1]].any()  # [CLS] and [SEP]
        per_piece = hidden[:, 1:-1].mean(axis=0)
        assert per_piece == pytest.approx(np.full(11, 2 / 11), abs=0.03)
        masked = shown[hidden] == tokenizer.mask_token_id
        changed = ~masked & (shown[hidden] != labels[hidden])
        # Standard errors of 8000 draws: 0.0045 and 0.0034. A random word is rarely the same one.
        assert masked.mean() == pytest.approx(0.8, abs=0.015)
        assert changed.mean() == pytest.approx(0.1, abs=0.012)
        words = shown[hidden][changed]
        assert not special & set(words.tolist())
        assert len(set(words.tolist())) > 200  # of all the vocabulary
        assert (shown[~hidden] == original[~hidden]).all()


def test_random_words_are_the_vocabulary_without_special_ones(tokenizer: Any) -> None:
    hider = PieceHider.of(tokenizer)
    assert len(hider.plain_ids) == len(tokenizer) - len(tokenizer.all_special_ids)
    assert not set(hider.plain_ids.tolist()) & set(tokenizer.all_special_ids)


def test_training_draws_by_seed_epoch_and_row(tokenizer: Any) -> None:
    data = encode(tokenizer, *[LINE] * 30)
    rows = list(range(30))
    fixed = batch(data, rows)[1]
    draws = {draw: batch(data, rows, draw)[1] for draw in ((0, 0), (0, 1), (1, 0))}
    for labels in draws.values():
        assert (labels != fixed).any(axis=1).sum() > 15
        assert (labels != IGNORED).sum(axis=1).tolist() == data.loss_counts.tolist()
    assert (draws[0, 0] != draws[0, 1]).any(axis=1).sum() > 15
    assert (draws[0, 0] != draws[1, 0]).any(axis=1).sum() > 15
    assert np.array_equal(draws[0, 1], batch(data, rows, (0, 1))[1])


def test_a_rows_draw_does_not_depend_on_its_batch(tokenizer: Any) -> None:
    """So that any number of workers or parts of a step sees the same."""
    data = encode(tokenizer, "the dog slept .", LINE, "the cat saw the man .")
    together = batch(data, [2, 0, 1], (5, 3))
    for i, row in enumerate([2, 0, 1]):
        length = data.lengths[row]
        for all_rows, alone in zip(together, batch(data, [row], (5, 3)), strict=True):
            assert all_rows[i, :length].tolist() == alone[0].tolist()
    subset = data.take(np.array([1]))  # of few rows: known by its number in the whole split
    assert np.array_equal(batch(subset, [0], (5, 3))[0], batch(data, [1], (5, 3))[0])


def test_other_kinds_have_nothing_to_draw(tokenizer: Any) -> None:
    rows = pa.table({"text": [LINE], "label": [1]})
    data = encode_rows(registry.get_task("tense"), rows, tokenizer, 32)
    assert data.redraw is None
    assert data.batch([0], (0, 0)).keys() == data.batch([0]).keys()
