"""One of several tags per word."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.tasks.encoded import IGNORED, OUTSIDE, EncodedRows
from bermo_ray.tasks.heads.base import Collected, Columns, Logits, label_settings, model_inputs
from bermo_ray.tasks.heads.labelled import LabelledPieces
from bermo_ray.tasks.row_check import RowCheck

if TYPE_CHECKING:
    from bermo_ray.tasks.task import Task


class Tagging(LabelledPieces):
    """Logits ``[b, s, c]``. A word's tag stands at its first piece; other pieces do not count.

    Extras: ``tags`` of all words of a row, and ``first_pieces``, the index of each word's first
    piece, or :data:`OUTSIDE` where the row was cut before the word (or the word has no piece).
    """

    name = "token"
    columns = ("words", "tags")
    stock_class = "AutoModelForTokenClassification"
    extra_names = ("tags", "first_pieces")

    def config_settings(self, labels: tuple[str, ...]) -> dict[str, Any]:
        return label_settings(labels)

    def few_shot_classes(self, labels: tuple[str, ...]) -> int:
        """Entity types of BIO tags; of other tags, all of them."""
        types = {tag[2:] for tag in labels if tag.startswith(("B-", "I-"))}
        return len(types) or super().few_shot_classes(labels)

    def check(self, check: RowCheck, labels: tuple[str, ...]) -> pa.Table:
        """Tags may be given by number or by name, a list per row as long as its words."""
        lengths = _check_lists(check)
        check.check_words("words")
        return check.with_column("tags", _tag_numbers(check, labels, lengths))

    def encode_block(
        self, task: "Task", rows: pa.Table, first: int, tokenizer: Any, max_length: int
    ) -> Columns:
        """Words are joined by spaces, as the encoder has seen text: byte-level tokenizers know a
        word by the space before it."""
        words, tags = rows["words"].to_pylist(), rows["tags"].to_pylist()
        texts = [" ".join(row) for row in words]
        coded = tokenizer(
            texts, truncation=True, max_length=max_length, return_offsets_mapping=True
        )
        labels, first_pieces = [], []
        for i, row in enumerate(words):
            pieces = _first_pieces(row, texts[i], coded["offset_mapping"][i])
            present = pieces != OUTSIDE
            row_labels = np.full(len(coded["input_ids"][i]), IGNORED)
            row_labels[pieces[present]] = np.array(tags[i])[present]
            labels.append(row_labels)
            first_pieces.append(pieces)
        numbers = np.arange(first, first + rows.num_rows)
        extras = {"tags": tags, "first_pieces": first_pieces}
        return model_inputs(coded) | extras | {"labels": labels, "row": numbers}

    def predict(
        self, data: EncodedRows, rows: Sequence[int] | np.ndarray, logits: Logits
    ) -> list[np.ndarray]:
        """A tag per word; a word that was cut away gets the first tag, O."""
        best = self.best_classes(data, rows, logits)
        first_pieces = [data.extras["first_pieces"][row] for row in rows]
        pairs = zip(first_pieces, best, strict=True)
        return [np.where(pieces >= 0, tags[pieces], 0) for pieces, tags in pairs]

    def collect(self, data: EncodedRows, predictions: list[Any]) -> Collected:
        return data.row_numbers.tolist(), predictions, list(data.extras["tags"])


def _check_lists(check: RowCheck) -> pa.ChunkedArray:
    """The number of words of each row; each has as many tags, and at least one."""
    for name in ("words", "tags"):
        if not pa.types.is_list(check.rows[name].type):
            raise check.error(name, 0, f"expected lists, found {check.rows[name].type}")
    words, tags = (pc.list_value_length(check.rows[name]) for name in ("words", "tags"))
    differ = pc.fill_null(pc.not_equal(words, tags), True)
    check.refuse("tags", differ, lambda row: f"{words[row]} words but {tags[row]} tags")
    check.refuse("words", pc.equal(words, 0), lambda _: "no words")
    return words


def _tag_numbers(
    check: RowCheck, labels: tuple[str, ...], lengths: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Tag numbers in the order of ``labels``, a list per row."""
    tags = pc.list_flatten(check.rows["tags"])
    if pa.types.is_integer(tags.type):
        order = check.class_names("tags") or labels
        out_of_range = pc.or_(pc.less(tags, 0), pc.greater_equal(tags, len(order)))
        known = pc.if_else(out_of_range, pa.scalar(None, tags.type), tags)
        numbers = pc.index_in(pc.take(pa.array(order), known), pa.array(labels))
    else:
        numbers = pc.index_in(tags.cast(pa.string()), pa.array(labels))
    if (index := pc.index(pc.is_null(numbers), True).as_py()) >= 0:
        row = pc.list_parent_indices(check.rows["tags"])[index].as_py()
        problem = f"tag {tags[index].as_py()!r} is not one of {', '.join(labels)}"
        raise check.error("tags", row, problem)
    numbers = numbers.cast(pa.int64())
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy())]).astype(np.int32)
    return pa.chunked_array([pa.ListArray.from_arrays(offsets, numbers)])


def _first_pieces(words: list[str], text: str, offsets: list[tuple[int, int]]) -> np.ndarray:
    """The index of each word's first piece, or OUTSIDE; ``offsets``: characters of each piece."""
    word_starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    first_pieces = np.full(len(words), OUTSIDE)
    for piece in range(len(offsets) - 1, -1, -1):
        begin, end = offsets[piece]
        while begin < end and text[begin].isspace():  # some tokenizers count the space to its piece
            begin += 1
        if begin < end:
            first_pieces[np.searchsorted(word_starts, begin, side="right") - 1] = piece
    return first_pieces


TAGGING = Tagging()
