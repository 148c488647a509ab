"""Files of tasks, written small."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bermo_ray.trial import Data

SENTEVAL = "tr\tPAST\tHe slept .\nva\tPRES\tHe sleeps .\ntr\tPRES\tShe runs .\nte\tPAST\tIt ran .\n"


def data_in(folder: Path, task: str, **more: Any) -> Data:
    return Data.model_validate({"task": task, "data_dir": str(folder)} | more)


def write_parquet(folder: Path, name: str, columns: dict[str, Any]) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def write_text(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def article(*answers: tuple[str, int], context: str = "The old dog slept .") -> str:
    texts = [{"text": t, "answer_start": s} for t, s in answers]
    asked = {"id": "1", "question": "Who slept ?", "answers": texts}
    return json.dumps(
        {"data": [{"title": "x", "paragraphs": [{"context": context, "qas": [asked]}]}]}
    )
