"""SQuAD v1.1: ``squad/<part>.parquet``, SQuAD's ``squad/train-v1.1.json``, or the hub."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.tasks.heads import SPAN
from bermo_ray.tasks.sources import Hub, Reader, Rows, Source, read_parquet
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Data

ANSWERS = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])


def read_squad(file: Path, part: str = "") -> pa.Table:
    """The questions of a SQuAD file, in its order."""
    schema = pa.schema([("context", pa.string()), ("question", pa.string()), ("answers", ANSWERS)])
    try:
        articles = json.loads(file.read_bytes().decode())["data"]
        rows = [
            {
                "context": paragraph["context"],
                "question": question["question"],
                "answers": {
                    key: [answer[key] for answer in question["answers"]]
                    for key in ("text", "answer_start")
                },
            }
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        return pa.Table.from_pylist(rows, schema=schema)
    except (
        UnicodeDecodeError,
        json.JSONDecodeError,
        KeyError,
        TypeError,
        pa.ArrowException,
    ) as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{file}: not a SQuAD file: {why}") from None


def _files(part: str) -> Mapping[str, Reader]:
    name = "dev" if part == "validation" else part
    return {f"squad/{part}.parquet": read_parquet, f"squad/{name}-v1.1.json": read_squad}


def _open(source: Source, data: Data, part: str) -> Rows:
    rows = source.open(data, part)
    return replace(rows, read=lambda: flatten_answers(rows.where, rows.read()))


def flatten_answers(where: str, rows: pa.Table) -> pa.Table:
    """The answers' texts and places as columns of their own."""
    if "answers" not in rows.column_names:
        raise UserError(f"{where}: no column 'answers'; found {rows.column_names}")
    answers = rows["answers"]
    fields = ("text", "answer_start")
    is_struct = pa.types.is_struct(answers.type)
    if not is_struct or any(answers.type.get_field_index(name) < 0 for name in fields):
        raise UserError(
            f"{where}: column 'answers': expected text and answer_start, found {answers.type}"
        )
    parts = [pc.struct_field(answers, name) for name in fields]
    rows = rows.drop_columns(["answers"])
    return rows.append_column("answers", parts[0]).append_column("answer_starts", parts[1])


def tasks() -> dict[str, Task]:
    """``squad``."""
    task = Task(
        name="squad",
        head=SPAN,
        labels=(),
        metric="span_f1",
        pair=True,
        open_source=partial(_open, Source(_files, Hub("rajpurkar/squad"))),
        columns={"text": "question", "text_pair": "context"},
        extra_metrics=("exact_match",),
    )
    return {task.name: task}
