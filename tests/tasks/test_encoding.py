import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray import cache
from bermo_ray.models import backbone
from bermo_ray.tasks import encoding, registry
from bermo_ray.tasks.encoded import IGNORED, OUTSIDE, EncodedRows, Ragged
from bermo_ray.tasks.encoding import encode_rows
from bermo_ray.tasks.heads import CLASSIFICATION, MASKED, SPAN, TAGGING, HeadKind
from bermo_ray.tasks.sources import Rows
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Data


def make_task(head: HeadKind, pair: bool = False, **more: Any) -> Task:
    return Task("t", head, ("a", "b"), "accuracy", pair, lambda *_: NOTHING, **more)


NOTHING = Rows("nowhere", lambda: b"", lambda: pa.table({}))


@pytest.fixture(scope="module")
def tokenizer() -> object:
    return backbone.load_tokenizer("embedded")


def test_batches_are_padded_to_their_longest_row(tokenizer: object) -> None:
    rows = pa.table({"text": ["dog", "the dog slept"], "label": [0, 1]})
    data = encode_rows(make_task(CLASSIFICATION), rows, tokenizer, 16)
    batch = data.batch([0, 1])
    assert batch["input_ids"].shape == (2, 5)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch["input_ids"][0, 3:].tolist() == [data.pad_id] * 2
    assert batch["labels"].tolist() == [0, 1]
    assert data.batch([0])["input_ids"].shape == (1, 3)


def test_pairs_have_two_token_types_and_are_cut(tokenizer: object) -> None:
    rows = pa.table({"text": ["the dog"], "text_pair": ["the cat slept"], "label": [0]})
    data = encode_rows(make_task(CLASSIFICATION, pair=True), rows, tokenizer, 7)
    assert len(data.inputs["input_ids"][0]) == 7
    assert set(data.inputs["token_type_ids"][0]) == {0, 1}


def test_tags_stand_at_first_pieces(tokenizer: object) -> None:
    rows = pa.table({"words": [["the", "zqzq", "dog"]], "tags": [[0, 1, 2]]})
    labels = list(encode_rows(make_task(TAGGING), rows, tokenizer, 32).gold["labels"][0])
    assert [x for x in labels if x != IGNORED] == [0, 1, 2]
    assert labels[0] == labels[-1] == IGNORED
    assert len(labels) > 5  # the unknown word is several pieces


def answered(context: str, *answers: str) -> pa.Table:
    return pa.table(
        {
            "text": ["who slept ?"] * len(answers),
            "text_pair": [context] * len(answers),
            "answers": [[answer] for answer in answers],
            "answer_starts": [[context.index(answer)] for answer in answers],
        }
    )


def test_spans_point_at_the_answers_pieces(tokenizer: object) -> None:
    context = "the old dog slept ."
    data = encode_rows(
        make_task(SPAN, pair=True), answered(context, "old dog", "slept"), tokenizer, 32
    )
    for row, answer in enumerate(["old dog", "slept"]):
        start = data.gold["start_positions"][row]
        end = data.gold["end_positions"][row]
        assert context[data.extras["starts"][row][start] : data.extras["ends"][row][end]] == answer
    assert data.extras["starts"][0][1] == OUTSIDE  # the question holds no answer
    assert data.extras["answers"].to_pylist() == [["old dog"], ["slept"]]


def test_a_long_context_has_windows_that_share_a_third(tokenizer: Any) -> None:
    words = ["the old dog chased the young cat", "the man slept", "a girl saw the garden"]
    context = " . ".join(words * 3) + " ."
    answer = "the garden ."
    data = encode_rows(
        make_task(SPAN, pair=True), answered(context, answer, "old dog"), tokenizer, 24
    )
    assert set(data.row_numbers.tolist()) == {0, 1}
    assert (data.lengths <= 24).all()
    windows = np.flatnonzero(data.row_numbers == 0)
    assert len(windows) > 2
    seen = np.zeros(len(context), dtype=bool)
    for i, window in enumerate(windows):
        starts = data.extras["starts"][window]
        inside = starts[starts != OUTSIDE]
        for begin, end in zip(starts, data.extras["ends"][window], strict=True):
            seen[max(0, begin) : max(0, end)] = True
        if i:  # a third of 24 pieces are those that the window before ends with
            before = data.extras["starts"][windows[i - 1]]
            assert before[before != OUTSIDE][-8:].tolist() == inside[:8].tolist()
    assert all(seen[i] or c == " " for i, c in enumerate(context))  # nothing is cut away
    answers_seen = []
    for window in windows:
        start, end = (data.gold[f"{side}_positions"][window] for side in ("start", "end"))
        if (start, end) != (0, 0):  # the whole answer is in this window
            begin = data.extras["starts"][window][start]
            answers_seen.append(context[begin : data.extras["ends"][window][end]])
    assert answers_seen
    assert set(answers_seen) == {answer}
    assert len(answers_seen) < len(windows)
    # Context and answers are kept once per question.
    assert data.extras["contexts"].null_count == len(data) - 2


def test_running_text_is_cut_into_full_rows(tokenizer: Any) -> None:
    rows = pa.table({"text": ["the dog slept .", "", "the cat saw the man ."] * 10})
    data = encode_rows(make_task(MASKED, running_text=True), rows, tokenizer, 16)
    pieces = sum(map(len, tokenizer(rows["text"].to_pylist(), add_special_tokens=False).input_ids))
    assert data.lengths.tolist() == [16] * (pieces // 14)  # 14 and the two at the ends
    labels = data.gold["labels"][0]
    unmasked = np.where(labels == IGNORED, data.inputs["input_ids"][0], labels)
    assert tokenizer.decode(unmasked[1:-1]).startswith("the dog slept. the cat saw the man. the")


def plain(data: EncodedRows) -> dict[str, Any]:
    """Every batch of a row, as lists."""
    return {str(r): {k: v.tolist() for k, v in data.batch([r]).items()} for r in range(len(data))}


def mapped(values: np.ndarray) -> bool:
    """Whether an array lies in a file of the cache, not in the process's memory."""
    address = values.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        if low <= address < high:
            return line.endswith(".arrow")
    return False


@pytest.mark.parametrize("name", ["tense", "similarity", "entities", "answer_span", "masked_words"])
def test_what_the_cache_gives_is_what_encoding_gives(
    name: str, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path))
    task, settings = registry.get_task(name), Data(task=name, train_rows=20)
    fresh = encode_rows(task, task.take_rows(settings, "train", 0), tokenizer, 128)
    encoding.encode_split(task, settings, "train", 0, tokenizer)
    kept = encoding.encode_part(task, settings, "train", tokenizer)
    again = encoding.encode_split(task, settings, "train", 0, tokenizer)
    assert plain(fresh) == plain(kept) == plain(again)
    assert len(list(tmp_path.rglob("*.arrow"))) == 1
    assert mapped(kept.inputs["input_ids"].values)
    # Another length is another encoding; another seed or subset is not.
    encoding.encode_split(
        task, settings.model_copy(update={"max_length": 64}), "train", 0, tokenizer
    )
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    encoding.encode_split(
        task, settings.model_copy(update={"whole_dev": True}), "train", 1, tokenizer
    )
    assert len(list(tmp_path.rglob("*.arrow"))) == 2


def encode_and_count(folder: str, out: Any) -> None:
    import os

    os.environ[cache.CACHE_VARIABLE] = folder
    calls = []
    encode_table = encoding._encode_table

    def counted(*args: Any) -> pa.Table:
        calls.append(1)
        return encode_table(*args)

    encoding._encode_table = counted
    task = registry.get_task("tense")
    data = encoding.encode_split(
        task, Data(train_rows=300), "train", 0, backbone.load_tokenizer("embedded")
    )
    out.put((len(calls), data.inputs["input_ids"].stamp()))


@pytest.mark.slow
def test_many_that_start_at_once_encode_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    workers = [
        context.Process(target=encode_and_count, args=(str(tmp_path), out)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    results = [out.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(calls for calls, _ in results) == 1
    assert len({stamp for _, stamp in results}) == 1


def test_a_word_that_is_cut_away_still_counts(tokenizer: Any) -> None:
    rows = pa.table({"words": [["the", "zqzq", "dog", "slept"]], "tags": [[0, 1, 0, 1]]})
    data = encode_rows(make_task(TAGGING), rows, tokenizer, 6)
    assert data.extras["tags"][0].tolist() == [0, 1, 0, 1]
    first_pieces = data.extras["first_pieces"][0].tolist()
    assert first_pieces[:2] == [1, 2]
    assert first_pieces[3] == OUTSIDE
    labels = data.gold["labels"][0]
    assert [labels[p] for p in first_pieces[:2]] == [0, 1]


def test_byte_level_words_have_the_pieces_of_running_text() -> None:
    """A byte-level tokenizer knows a word by the space before it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    words = ["the", "old", "dog", "in", "Paris"]
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([" ".join(words)] * 5, trainer)
    raw.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    names = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    roberta = PreTrainedTokenizerFast(tokenizer_object=raw, **names)
    rows = pa.table({"words": [words], "tags": [[0, 0, 1, 0, 1]]})
    data = encode_rows(make_task(TAGGING), rows, roberta, 64)
    assert data.inputs["input_ids"][0].tolist() == roberta(" ".join(words))["input_ids"]
    pieces = roberta.convert_ids_to_tokens(data.inputs["input_ids"][0])
    firsts = [pieces[first] for first in data.extras["first_pieces"][0]]
    assert [p[:1] for p in firsts[1:]] == ["Ġ"] * 4


def test_padding_is_behind_or_in_front() -> None:
    rows = Ragged.of(pa.array([[1, 2, 3], [4], [5, 6]], pa.large_list(pa.int32())))
    chosen = np.array([1, 0])
    assert rows.padded(chosen, 3, 9, left=False).tolist() == [[4, 9, 9], [1, 2, 3]]
    assert rows.padded(chosen, 3, 9, left=True).tolist() == [[9, 9, 4], [1, 2, 3]]
    assert rows.padded(np.array([0]), 3, 9, left=True).tolist() == [[1, 2, 3]]
    assert [r.tolist() for r in rows.cut(slice(1))] == [[1], [4], [5]]
    assert [r.tolist() for r in rows.cut(slice(-1, None))] == [[3], [4], [6]]
    assert [r.tolist() for r in rows.take(np.array([2, 0]))] == [[5, 6], [1, 2, 3]]
