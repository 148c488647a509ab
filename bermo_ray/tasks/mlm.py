"""Masked words of running text: WikiText-2 and WikiText-103, and any text of the user's own."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

from bermo_ray.tasks.heads import MASKED
from bermo_ray.tasks.sources import Hub, Reader, Source, read_lines, read_parquet
from bermo_ray.tasks.task import Task

_WIKITEXT = {"train": "wiki.train.raw", "validation": "wiki.valid.raw", "test": "wiki.test.raw"}


def read_text(file: Path, part: str = "") -> pa.Table:
    """A text file's lines that are not empty."""
    lines = [line for _, line in read_lines(file) if line.strip()]
    return pa.table({"text": pa.array(lines, pa.string())})


def _wikitext2(part: str) -> Mapping[str, Reader]:
    return {
        f"wikitext-2-raw/{part}.parquet": read_parquet,
        f"wikitext-2-raw/{_WIKITEXT[part]}": read_text,
    }


def _wikitext103(part: str) -> Mapping[str, Reader]:
    """Of WikiText-103 the training rows; its dev and test sets are the text of WikiText-2's."""
    if part != "train":
        return _wikitext2(part)
    return {"wikitext-103/train.parquet": read_parquet, "wikitext-103/wiki.train.tokens": read_text}


def _user_text(name: str, part: str) -> Mapping[str, Reader]:
    return {f"{name}/{part}.parquet": read_parquet, f"{name}/{part}.txt": read_text}


def _task(name: str, source: Source, running_text: bool) -> Task:
    return Task(
        name=name,
        head=MASKED,
        labels=(),
        metric="masked_accuracy",
        pair=False,
        open_source=source.open,
        extra_metrics=("perplexity",),
        test="test",
        running_text=running_text,
    )


def tasks() -> dict[str, Task]:
    """``wikitext2``, ``wikitext103``, and ``text``: the user's own, one row per line."""
    hub = Hub("Salesforce/wikitext", "wikitext-2-raw-v1")
    return {
        "wikitext2": _task("wikitext2", Source(_wikitext2, hub), running_text=True),
        "wikitext103": _task("wikitext103", Source(_wikitext103), running_text=True),
        "text": _task("text", Source(partial(_user_text, "text")), running_text=False),
    }
