"""Rows to word pieces, once a node.

A split is encoded whole, once for each tokenizer and length, and kept as one Arrow file that all
trials and workers of a node map into memory; what a trial takes of it are row numbers.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray import cache
from bermo_ray.errors import UserError
from bermo_ray.tasks.encoded import IGNORED, OUTSIDE, Answers, Encoded, Ragged, Words
from bermo_ray.tasks.task import Split, Task
from bermo_ray.trial import Data

MASKED_SHARE = 0.15  # of a row's pieces, in the masked tasks
LONGEST_QUESTION = 64  # pieces, or a third of the length: the context needs the rest
FORMAT = b"2"  # a new number makes every file of an older layout unfindable
AT_ONCE = 1000  # rows given to the tokenizer

Columns = dict[str, Any]


def load(task: Task, data: Data, split: Split, seed: int, tokenizer: Any) -> Encoded:
    """The rows that a trial takes of a split, encoded; from the node's cache or put there."""
    return take(task, data, split, seed, whole(task, data, task.part(split), tokenizer))


def take(task: Task, data: Data, split: Split, seed: int, every: Encoded) -> Encoded:
    """What a trial takes of a whole split: of its questions, where those have several windows."""
    numbers, first = np.unique(every.rows, return_index=True)
    chosen = task.chosen(data, split, seed, len(numbers))
    if len(chosen) == len(numbers):
        return every
    if len(numbers) == len(every):
        return every.take(chosen)
    borders = np.append(first, len(every))
    return every.take(np.concatenate([np.arange(borders[q], borders[q + 1]) for q in chosen]))


def whole(task: Task, data: Data, part: str, tokenizer: Any) -> Encoded:
    """All rows of a part, encoded; from the node's cache or put there."""
    place = cache.folder("encoded")
    if place is None:
        return encode(task, task.rows(data, part), tokenizer, data.max_length)
    about = (task.name, task.head, task.labels, part, task.grouped, data.max_length)
    digest = hashlib.blake2b(FORMAT + repr(about).encode(), digest_size=16)
    source = task.open(data, part)
    digest.update(source.stamp())
    digest.update(_stamp(tokenizer))

    def write(file: Path) -> None:
        table = _columns(task, task.rows(data, part), tokenizer, data.max_length)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    def read(file: Path) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()

    mapped = cache.get(place / f"{digest.hexdigest()}.arrow", source.size, write, read)
    return _encoded(task, mapped, tokenizer)


def encode(task: Task, rows: pa.Table, tokenizer: Any, max_length: int) -> Encoded:
    """Word pieces of these rows and their targets in the shape of the task's head."""
    return _encoded(task, _columns(task, rows, tokenizer, max_length), tokenizer)


def _stamp(tokenizer: Any) -> bytes:
    """Identity of a tokenizer: its rules and words, not the settings of its last call."""
    import tokenizers
    import transformers

    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    about = [rules | {"truncation": None, "padding": None}, tokenizer.padding_side]
    about += [type(tokenizer).__name__, tokenizer.model_input_names, tokenizer.all_special_ids]
    about += [tokenizer.truncation_side]
    about += [transformers.__version__, tokenizers.__version__]
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode()).digest()


def _encoded(task: Task, table: pa.Table, tokenizer: Any) -> Encoded:
    # One chunk each, taken as it is: combining would copy what is mapped.
    columns = {name: table[name].chunk(0) for name in table.column_names}
    inputs = {n: Ragged.of(columns[n]) for n in ("input_ids", "token_type_ids") if n in columns}
    targets = {
        name: Ragged.of(columns[name])
        if pa.types.is_large_list(columns[name].type)
        else columns[name].to_numpy()
        for name in ("labels", "start_positions", "end_positions")
        if name in columns
    }
    answers = None
    if task.head == "span":
        answers = Answers(
            Ragged.of(columns["starts"]),
            Ragged.of(columns["ends"]),
            columns["contexts"],
            columns["texts"],
        )
    words = None
    if task.head == "token":
        words = Words(Ragged.of(columns["tags"]), Ragged.of(columns["places"]))
    left = tokenizer.padding_side == "left"
    rows = columns["row"].to_numpy()
    return Encoded(task, inputs, targets, rows, tokenizer.pad_token_id, left, answers, words)


def _columns(task: Task, rows: pa.Table, tokenizer: Any, max_length: int) -> pa.Table:
    """Everything of the rows that training and evaluation need, one encoded row each."""
    by_head: dict[str, Callable[..., Columns]] = {
        "token": _tagged,
        "span": _windows,
        "masked": _running if task.grouped else _lines,
    }
    made = by_head.get(task.head, _classified)
    found: dict[str, Any] = {}
    for first in range(0, rows.num_rows, AT_ONCE):
        part = made(task, rows.slice(first, AT_ONCE), first, tokenizer, max_length)
        for name, values in part.items():
            found.setdefault(name, []).extend(values)
    if not found["input_ids"]:
        raise UserError(f"task {task.name}: its text gives no row of {max_length} pieces")
    if task.head == "masked":
        found = _masked(found, tokenizer)
    return pa.table(
        {
            name: _nested(values, np.int8 if name == "token_type_ids" else np.int32)
            if len(values) and isinstance(values[0], (list, np.ndarray)) and name != "texts"
            else pa.array(values)
            for name, values in found.items()
        }
    )


def _nested(rows: list[Any], kind: Any) -> pa.Array:
    flat = np.concatenate([np.asarray(row, dtype=kind) for row in rows])
    places = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return pa.LargeListArray.from_arrays(places, flat)


def _pieces(coded: Any) -> Columns:
    """Of a tokenizer's answer, what the models take; the attention mask follows from lengths."""
    return {name: coded[name] for name in ("input_ids", "token_type_ids") if name in coded}


def _classified(task: Task, rows: pa.Table, first: int, tokenizer: Any, length: int) -> Columns:
    pair = rows["text_pair"].to_pylist() if task.pair else None
    coded = tokenizer(rows["text"].to_pylist(), pair, truncation=True, max_length=length)
    kind = np.float32 if task.head == "regression" else np.int64
    labels = rows["label"].to_numpy().astype(kind)
    return _pieces(coded) | {"labels": labels, "row": np.arange(first, first + rows.num_rows)}


def _tagged(task: Task, rows: pa.Table, first: int, tokenizer: Any, length: int) -> Columns:
    """Words between spaces, as the encoder has seen text: byte-level tokenizers know a word by the
    space before it. A word's tag stands at its first piece; the other pieces do not count."""
    words, tags = rows["words"].to_pylist(), rows["tags"].to_pylist()
    texts = [" ".join(row) for row in words]
    coded = tokenizer(texts, truncation=True, max_length=length, return_offsets_mapping=True)
    labels, places = [], []
    for i, row in enumerate(words):
        first_pieces = _first_pieces(row, texts[i], coded["offset_mapping"][i])
        targets = np.full(len(coded["input_ids"][i]), IGNORED)
        there = first_pieces != OUTSIDE
        targets[first_pieces[there]] = np.array(tags[i])[there]
        labels.append(targets)
        places.append(first_pieces)
    numbers = np.arange(first, first + rows.num_rows)
    return _pieces(coded) | {"labels": labels, "tags": tags, "places": places, "row": numbers}


def _first_pieces(words: list[str], text: str, offsets: list[tuple[int, int]]) -> np.ndarray:
    """Where each word's first piece stands, or OUTSIDE."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    found = np.full(len(words), OUTSIDE)
    for piece in range(len(offsets) - 1, -1, -1):
        begin, end = offsets[piece]
        while begin < end and text[begin].isspace():  # some count the space to their piece
            begin += 1
        if begin < end:
            found[np.searchsorted(starts, begin, side="right") - 1] = piece
    return found


def _windows(task: Task, rows: pa.Table, first: int, tokenizer: Any, length: int) -> Columns:
    """Question and context; a context too long for one row has several, a third of them shared."""
    most = min(LONGEST_QUESTION, length // 3)
    questions = rows["text"].to_pylist()
    pieces = tokenizer(questions, add_special_tokens=False, return_offsets_mapping=True)
    questions = [
        text[: places[most][0]] if len(places) > most else text
        for text, places in zip(questions, pieces["offset_mapping"], strict=True)
    ]
    contexts, texts = rows["text_pair"].to_pylist(), rows["answers"].to_pylist()
    coded = tokenizer(
        questions,
        contexts,
        truncation="only_second",
        max_length=length,
        stride=length // 3,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    found: dict[str, list[Any]] = {
        name: [] for name in ("starts", "ends", "start_positions", "end_positions")
    }
    answer_starts = rows["answer_starts"].to_pylist()
    source = coded["overflow_to_sample_mapping"]
    for window, row in enumerate(source):
        inside = np.array([side == 1 for side in coded.sequence_ids(window)])
        places = np.where(inside[:, None], np.array(coded["offset_mapping"][window]), OUTSIDE)
        begin = answer_starts[row][0]
        ids = coded["input_ids"][window]
        no_answer = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
        start, end = _pieces_of(places, begin, begin + len(texts[row][0]), no_answer)
        values = (places[:, 0], places[:, 1], start, end)
        for name, value in zip(found, values, strict=True):
            found[name].append(value)
    is_first = [i == 0 or source[i - 1] != row for i, row in enumerate(source)]
    kept = {
        name: [values[r] if f else None for r, f in zip(source, is_first, strict=True)]
        for name, values in (("contexts", contexts), ("texts", texts))
    }
    return _pieces(coded) | found | kept | {"row": first + np.array(source)}


def _pieces_of(places: np.ndarray, start: int, end: int, no_answer: int) -> tuple[int, int]:
    """First and last piece of the characters start..end; the [CLS] when not all are there."""
    inside = np.flatnonzero((places[:, 0] < end) & (places[:, 1] > start) & (places[:, 0] >= 0))
    whole_answer = len(inside) and places[inside[0], 0] <= start and places[inside[-1], 1] >= end
    return (int(inside[0]), int(inside[-1])) if whole_answer else (no_answer, no_answer)


def _lines(task: Task, rows: pa.Table, first: int, tokenizer: Any, length: int) -> Columns:
    coded = tokenizer(rows["text"].to_pylist(), truncation=True, max_length=length)
    return _pieces(coded)


def _running(task: Task, rows: pa.Table, first: int, tokenizer: Any, length: int) -> Columns:
    """Some hundred lines as one text, cut into rows of full length; the rest is left out."""
    lines = (line.strip() for line in rows["text"].to_pylist())
    text = " ".join(line for line in lines if line)
    coded = tokenizer(
        [text], truncation=True, max_length=length, return_overflowing_tokens=True
    )  # fmt: skip
    full = [i for i, ids in enumerate(coded["input_ids"]) if len(ids) == length]
    return {name: [values[i] for i in full] for name, values in _pieces(coded).items()}


def _masked(columns: Columns, tokenizer: Any) -> Columns:
    """15 % of the pieces become [MASK] and are the targets; the choice is fixed by the row number,
    so that a number measured twice is the same number."""
    special = list(tokenizer.all_special_ids)
    ids, labels = [], []
    for row, pieces in enumerate(columns["input_ids"]):
        hidden = np.array(pieces)
        plain = np.flatnonzero(~np.isin(hidden, special))
        count = max(1, round(MASKED_SHARE * len(plain)))
        chosen = np.random.default_rng(row).permutation(plain)[:count]
        target = np.full(len(hidden), IGNORED)
        target[chosen] = hidden[chosen]
        hidden[chosen] = tokenizer.mask_token_id
        ids.append(hidden)
        labels.append(target)
    return columns | {"input_ids": ids, "labels": labels, "row": np.arange(len(ids))}
