"""What is said of rows that are wrong."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import registry
from tests.support.task_files import SENTEVAL, article, data_in, write_parquet, write_text

BAD_PARQUET: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "sst2",
        "glue/sst2",
        {"text": ["a"], "label": [0]},
        "no column 'sentence'; found ['text', 'label']",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": pa.array([], pa.string()), "label": pa.array([], pa.int64())},
        "no rows",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", "b"], "label": [0, 2]},
        "column 'label', row 1: label 2 is not one of 0..1",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", "b"], "label": [-1, 0]},
        "column 'label', row 0: label -1 is not one of 0..1",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", "b"], "label": [1, None]},
        "column 'label', row 1: no label",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a", None], "label": [0, 1]},
        "column 'sentence', row 1: no text",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a"], "label": [0.5]},
        "column 'label', row 0: expected classes, found double",
    ),
    (
        "sst2",
        "glue/sst2",
        {"sentence": ["a"], "label": ["good"]},
        "column 'label', row 0: unknown label 'good': known: negative, positive",
    ),
    (
        "stsb",
        "glue/stsb",
        {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [1.0, math.nan]},
        "column 'label', row 1: nan is no number to learn",
    ),
    (
        "stsb",
        "glue/stsb",
        {"sentence1": ["a"] * 2, "sentence2": ["b"] * 2, "label": [math.inf, 1.0]},
        "column 'label', row 0: inf is no number to learn",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], ["b", "c"]], "ner_tags": [[0], [1]]},
        "column 'ner_tags', row 1: 2 words but 1 tags",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], ["b", "c"]], "ner_tags": [[0], [1, 9]]},
        "column 'ner_tags', row 1: tag 9 is not one of O, B-PER",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"]], "ner_tags": [["B-X"]]},
        "column 'ner_tags', row 0: tag 'B-X' is not one of",
    ),
    ("squad", "squad", {"question": ["q"], "context": ["a b"]}, "no column 'answers'"),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": ["b"]},
        "column 'answers': expected text and answer_start, found string",
    ),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": [{"text": ["b"], "answer_start": [1]}]},
        "column 'answers', row 0: 'b' is not at 1 in its context",
    ),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": [{"text": [], "answer_start": []}]},
        "row 0: 0 answers and 0 places",
    ),
]


MORE_BAD: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a", None]], "ner_tags": [[0, 0]]},
        "column 'tokens', row 0: no text",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], [1]][1:], "ner_tags": [[0]]},
        "column 'tokens', row 0: expected text, found int64",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": ["a"], "ner_tags": [[0]]},
        "column 'tokens', row 0: expected lists, found string",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"], []], "ner_tags": [[0], []]},
        "column 'tokens', row 1: no words",
    ),
    (
        "conll2003",
        "conll2003",
        {"tokens": [["a"]], "ner_tags": [[0.5]]},
        "row 0: tag 0.5 is not one of",
    ),
    (
        "squad",
        "squad",
        {"question": ["q"], "context": ["a b"], "answers": [{"text": [""], "answer_start": [0]}]},
        "column 'answers', row 0: '' at 0 is no answer",
    ),
    (
        "squad",
        "squad",
        {
            "question": ["q"],
            "context": ["a b"],
            "answers": [{"text": ["b"], "answer_start": pa.scalar(None).as_py()}],
        },
        "row 0: 1 answers and 0 places",
    ),
]
BAD_PARQUET += MORE_BAD


@pytest.mark.parametrize(("task", "folder", "columns", "line"), BAD_PARQUET)
def test_bad_rows_name_file_column_and_row(
    tmp_path: Path, task: str, folder: str, columns: dict[str, Any], line: str
) -> None:
    file = write_parquet(tmp_path, f"{folder}/train.parquet", columns)
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        registry.get_task(task).read_rows(data_in(tmp_path, task), "train")
    assert str(caught.value).startswith(f"{file}: ")
    assert line in str(caught.value)


BAD_TEXT: list[tuple[str, str, str | bytes, str]] = [
    (
        "senteval/past_present",
        "senteval/past_present.txt",
        "tr\tPAST\n",
        "line 1: expected tr, va or te",
    ),
    (
        "senteval/past_present",
        "senteval/past_present.txt",
        SENTEVAL.encode() + b"tr\tPAST\tcaf\xe9\n",
        "line 5: byte 0xe9 is not UTF-8; convert the file",
    ),
    (
        "senteval/past_present",
        "senteval/past_present.txt",
        "tr\tFUTURE\ta\n",
        "column 'label', row 0: unknown label 'FUTURE'",
    ),
    ("senteval/past_present", "senteval/past_present.txt", "va\tPAST\ta\n", "no rows"),
    (
        "conll2003",
        "conll2003/train.txt",
        "EU B-ORG\nalone\n",
        "line 2: expected a word and its tag, found 'alone'",
    ),
    ("conll2003", "conll2003/train.txt", b"caf\xe9 O\n", "line 1: byte 0xe9 is not UTF-8"),
    ("squad", "squad/train-v1.1.json", "{", "not a SQuAD file: JSONDecodeError"),
    ("squad", "squad/train-v1.1.json", b'{"data": "\xe9"}', "not a SQuAD file: UnicodeDecodeError"),
    (
        "squad",
        "squad/train-v1.1.json",
        article(("cat", 4)),
        "row 0: 'cat' is not at 4 in its context",
    ),
    ("sst2", "glue/sst2/train.parquet", "no parquet", "can't be read as parquet"),
]


@pytest.mark.parametrize(("task", "name", "content", "line"), BAD_TEXT)
def test_bad_files_name_file_and_line(
    tmp_path: Path, task: str, name: str, content: str | bytes, line: str
) -> None:
    file = write_text(tmp_path, name, content)
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        registry.get_task(task).read_rows(data_in(tmp_path, task), "train")
    assert str(caught.value).startswith(f"{file}: ")
    assert line in str(caught.value)


def test_parquet_text_in_the_wrong_encoding_names_the_row(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"caf\xe9"], pa.binary())
    strings = pa.StringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2])
    file = write_parquet(
        tmp_path, "glue/sst2/train.parquet", {"sentence": strings, "label": [0, 1]}
    )
    with pytest.raises(UserError) as caught:
        registry.get_task("sst2").read_rows(data_in(tmp_path, "sst2"), "train")
    assert str(caught.value) == f"{file}: column 'sentence', row 1: not UTF-8; convert the file"
