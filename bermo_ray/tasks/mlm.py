"""Masked words of running text: WikiText-2 and WikiText-103, and any text of the user's own."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

from bermo_ray.tasks.source import Hub, Reader, Source, lines, parquet
from bermo_ray.tasks.task import Task

_WIKITEXT = {"train": "wiki.train.raw", "validation": "wiki.valid.raw", "test": "wiki.test.raw"}


def text(file: Path, part: str = "") -> pa.Table:
    """A text file's lines that are not empty."""
    found = [line for _, line in lines(file) if line.strip()]
    return pa.table({"text": pa.array(found, pa.string())})


def _wikitext2(part: str) -> Mapping[str, Reader]:
    return {
        f"wikitext-2-raw/{part}.parquet": parquet,
        f"wikitext-2-raw/{_WIKITEXT[part]}": text,
    }


def _wikitext103(part: str) -> Mapping[str, Reader]:
    """Trains on WikiText-103 and measures on WikiText-2's dev set: the two share its text."""
    if part != "train":
        return _wikitext2(part)
    return {"wikitext-103/train.parquet": parquet, "wikitext-103/wiki.train.tokens": text}


def _own(name: str, part: str) -> Mapping[str, Reader]:
    return {f"{name}/{part}.parquet": parquet, f"{name}/{part}.txt": text}


def _task(name: str, source: Source, grouped: bool) -> Task:
    also = ("perplexity",)
    return Task(
        name, "masked", (), "masked_accuracy", False, source.rows, also=also, grouped=grouped
    )


def tasks() -> dict[str, Task]:
    """``wikitext2``, ``wikitext103``, and ``text``: one's own, a row a line."""
    hub = Hub("Salesforce/wikitext", "wikitext-2-raw-v1")
    return {
        "wikitext2": _task("wikitext2", Source(_wikitext2, hub), True),
        "wikitext103": _task("wikitext103", Source(_wikitext103), True),
        "text": _task("text", Source(partial(_own, "text")), False),
    }
