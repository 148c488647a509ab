"""Own files: every format gives the same rows, and what is wrong is named by its line."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks.file_rows import read_file
from tests.support.task_files import article, write_parquet, write_text
from tests.support.user_files import write_rows

ROWS = [
    {"text": 'He said "no", twice.\nThen left.', "label": "a"},
    {"text": "tab\there", "label": "b"},
    {"text": "café", "label": "a"},
]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), file)
    elif ending == "json":
        file.write_text(json.dumps(ROWS))
    else:
        write_rows(file, ROWS)
    rows = read_file(file)
    assert list(rows.columns) == ["text", "label"]
    for name in ("text", "label"):
        assert rows.column(name).to_pylist() == [row[name] for row in ROWS]


def test_a_row_is_named_by_the_line_it_ends_at(tmp_path: Path) -> None:
    table = read_file(write_rows(tmp_path / "a.csv", ROWS))
    assert table.lines == [3, 4, 5]  # the first text has a line break
    assert str(table.error("label", 1, "why")) == f"{tmp_path}/a.csv: column 'label', line 4: why"
    parquet = read_file(write_parquet(tmp_path, "a.parquet", {"x": ["a", "b"]}))
    assert str(parquet.error("x", 1, "why")).endswith("column 'x', row 1: why")


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert list(read_file(write_text(tmp_path, "a.csv", "\ufefftext,label\na,b\n")).columns) == [
        "text",
        "label",
    ]


def test_words_with_tags_and_questions(tmp_path: Path) -> None:
    text = "Anna B-PER\nslept O\n\nParis B-LOC\n"
    for name, kind in (("a.conll", None), ("a.bio", None), ("a.txt", "tags")):
        rows = read_file(write_text(tmp_path, name, text), kind)
        assert rows.column("tokens").to_pylist() == [["Anna", "slept"], ["Paris"]]
        assert rows.column("ner_tags").to_pylist() == [["B-PER", "O"], ["B-LOC"]]
    rows = read_file(write_text(tmp_path, "a.json", article(("old dog", 4))))
    assert rows.column("answers").to_pylist() == [{"text": ["old dog"], "answer_start": [4]}]
    lines = read_file(write_text(tmp_path, "b.txt", "one\n\ntwo\n"), "masked")
    assert lines.column("text").to_pylist() == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", "", "a.csv: no rows"),
        ("a.csv", "text,label\n", "a.csv: no rows"),
        ("a.jsonl", "\n\n", "a.jsonl: no rows"),
        ("a.csv", "text,label\na,b\nc\n", "a.csv: line 3: 1 fields, the header has 2; texts with"),
        ("a.csv", 'text,label\na,"b\nc,d\n', "line 3: unexpected end of data; double the quotes"),
        ("a.csv", "text,text\na,b\n", "line 1: a column is named twice: text, text"),
        ("a.csv", b"text,label\n\xff,b\n", "line 2: byte 0xff is not UTF-8; convert the file"),
        ("a.jsonl", '{"a": 1}\n{"a" 1}\n', "a.jsonl: line 2: not JSON: Expecting ':' delimiter"),
        ("a.jsonl", "[1]\n", "a.jsonl: line 1: expected an object, one per line"),
        ("a.json", '{"a": 1}\n{"a": 2}\n', "name JSON lines .jsonl"),
        ("a.json", '{"a": 1}', "not a SQuAD file"),
        ("a.txt", "a\n", "Give `kind` tags or masked"),
        ("a.xlsx", "a\n", "its format is not read; give one of .csv, .tsv"),
        ("a.parquet", "a\n", "can't be read as parquet"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, name: str, content: str | bytes, problem: str
) -> None:
    with pytest.raises(UserError) as error:
        read_file(write_text(tmp_path, name, content))
    assert len(str(error.value).splitlines()) == 1
    assert problem in str(error.value)


def test_a_value_of_another_type_is_found(tmp_path: Path) -> None:
    rows = read_file(write_rows(tmp_path / "a.jsonl", [{"y": 1}, {"y": 2}, {"y": "c"}, {"y": 4}]))
    with pytest.raises(UserError, match=r"column 'y', line 3: 'c' is of another type than"):
        rows.column("y")
