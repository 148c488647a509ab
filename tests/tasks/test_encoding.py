import pyarrow as pa
import pytest
import torch

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.tasks.encoding import IGNORED, encode
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Data


def task(head: str, pair: bool = False, labels: tuple[str, ...] = ("a", "b")) -> Task:
    return Task("t", head, labels, "accuracy", pair, lambda *_: pa.table({}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tokenizer() -> object:
    return backbone.tokenizer("embedded")


def test_batches_are_padded_to_their_longest_row(tokenizer: object) -> None:
    rows = pa.table({"text": ["dog", "the dog slept"], "label": [0, 1]})
    data = encode(task("sequence"), rows, tokenizer, 16)
    batch = data.batch([0, 1])
    assert batch["input_ids"].shape == (2, 5)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch["input_ids"][0, 3:].tolist() == [data.pad_id] * 2
    assert batch["labels"].tolist() == [0, 1]
    assert data.batch([0])["input_ids"].shape == (1, 3)


def test_pairs_have_two_token_types_and_are_cut(tokenizer: object) -> None:
    rows = pa.table({"text": ["the dog"], "text_pair": ["the cat slept"], "label": [0]})
    data = encode(task("sequence", pair=True), rows, tokenizer, 7)
    assert len(data.inputs["input_ids"][0]) == 7
    assert set(data.inputs["token_type_ids"][0]) == {0, 1}


def test_tags_stand_at_first_pieces(tokenizer: object) -> None:
    rows = pa.table({"words": [["the", "zqzq", "dog"]], "tags": [[0, 1, 2]]})
    labels = encode(task("token"), rows, tokenizer, 32).targets["labels"][0]
    assert [x for x in labels if x != IGNORED] == [0, 1, 2]
    assert labels[0] == labels[-1] == IGNORED
    assert len(labels) > 5  # the unknown word is several pieces


def test_more_words_than_tags_names_the_row(tokenizer: object) -> None:
    rows = pa.table({"words": [["the"], ["the", "dog"]], "tags": [[0], [1]]})
    with pytest.raises(UserError, match="row 1: 2 words but 1 tags"):
        encode(task("token"), rows, tokenizer, 32)


def test_spans_point_at_the_answers_pieces(tokenizer: object) -> None:
    context = "the old dog slept ."
    rows = pa.table(
        {
            "text": ["who slept ?"] * 2,
            "text_pair": [context] * 2,
            "answer_text": ["old dog", "slept"],
            "answer_start": [4, 12],
        }
    )
    data = encode(task("span"), rows, tokenizer, 32)
    for row, answer in enumerate(["old dog", "slept"]):
        start = data.targets["start_positions"][row]
        end = data.targets["end_positions"][row]
        offsets = data.extra["offsets"][row]
        assert context[offsets[start][0] : offsets[end][1]] == answer
    assert data.extra["offsets"][0][1] is None  # the question holds no answer


def test_masking_is_fixed_by_the_row_and_hides_the_target(tokenizer: object) -> None:
    rows = pa.table({"text": ["the old dog chased the young cat in the garden ."]})
    first, second = (encode(task("masked"), rows, tokenizer, 32) for _ in range(2))
    assert first.inputs == second.inputs
    hidden = [i for i, t in enumerate(first.targets["labels"][0]) if t != IGNORED]
    assert len(hidden) == 2  # 15 % of 11 words
    ids = torch.tensor(first.inputs["input_ids"][0])
    assert set(ids[hidden].tolist()) == {tokenizer.mask_token_id}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"text": ["a"]}, "no column 'label'"),
        ({"text": pa.array([], pa.string()), "label": pa.array([], pa.int64())}, "no rows"),
        ({"text": ["a", "b"], "label": [0, 2]}, "row 1: label 2 is not one of 0..1"),
        ({"text": ["a", "b"], "label": [-1, 0]}, "row 0: label -1 is not one of 0..1"),
    ],
)
def test_bad_rows_are_named(columns: dict[str, object], line: str) -> None:
    bad = Task("t", "sequence", ("a", "b"), "accuracy", False, lambda *_: pa.table(columns))
    with pytest.raises(UserError) as caught:
        bad.table(Data(), "train", 0)
    assert line in str(caught.value)
    assert "task t, train" in str(caught.value)
