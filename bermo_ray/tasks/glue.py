"""GLUE, from the hub or from a folder of parquet with the hub's columns."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bermo_ray.errors import UserError
from bermo_ray.tasks.task import HeadKind, Split, Task
from bermo_ray.trial import Data

DATA_VARIABLE = "BERMO_DATA"  # stands in for `--data-dir`


@dataclass(frozen=True)
class _Glue:
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    metric: str = "accuracy"
    dev: str = "validation"


_YES_NO = ("entailment", "not_entailment")
_TASKS = {
    "sst2": _Glue(("sentence",), ("negative", "positive")),
    "mrpc": _Glue(("sentence1", "sentence2"), ("not_equivalent", "equivalent"), "f1"),
    "mnli": _Glue(
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),
        dev="validation_matched",
    ),
    "qnli": _Glue(("question", "sentence"), _YES_NO),
    "qqp": _Glue(("question1", "question2"), ("not_duplicate", "duplicate")),
    "rte": _Glue(("sentence1", "sentence2"), _YES_NO),
    "stsb": _Glue(("sentence1", "sentence2"), (), "spearman"),
    "cola": _Glue(("sentence",), ("unacceptable", "acceptable"), "matthews"),
}


def folder(data: Data) -> Path | None:
    """Where the parquet lies: the trial's own word, then BERMO_DATA, else None (the hub)."""
    place = data.data_dir or os.environ.get(DATA_VARIABLE)
    return Path(place).expanduser() if place else None


def _file(base: Path, name: str, split: str) -> Path:
    return base / "glue" / name / f"{split}.parquet"


def _problems(name: str, glue: _Glue, data: Data) -> list[str]:
    base = folder(data)
    if base is None:
        return []
    if not base.is_dir():
        return [f"task {name}: no data directory {base}; give --data-dir or set {DATA_VARIABLE}"]
    files = [_file(base, name, split) for split in ("train", glue.dev)]
    return [f"task {name}: no file {file}" for file in files if not file.is_file()]


def _load(name: str, glue: _Glue, data: Data, split: Split, seed: int) -> pa.Table:
    """Rows in the hub's order for dev; a subset of train is the first rows of a seeded shuffle."""
    import datasets  # slow to import, and only a trial on real data needs it

    part = glue.dev if split == "dev" else "train"
    count = data.dev_rows if split == "dev" else data.train_rows
    base = folder(data)
    if base is not None:
        rows = pq.read_table(_file(base, name, part))
    else:
        try:
            hub = datasets.load_dataset("nyu-mll/glue", name, split=part)
        except Exception as error:  # the hub client raises many kinds
            raise UserError(
                f"task {name}: the hub did not give it ({type(error).__name__}); "
                f"give --data-dir or set {DATA_VARIABLE}"
            ) from error
        rows = hub.data.table
    if missing := [c for c in (*glue.columns, "label") if c not in rows.column_names]:
        raise UserError(f"task {name}, {part}: no column {missing[0]!r} in {rows.column_names}")
    named = dict(zip(("text", "text_pair"), glue.columns, strict=False))
    kind = pa.int64() if glue.labels else pa.float32()
    columns = {new: rows[old] for new, old in named.items()} | {"label": rows["label"].cast(kind)}
    table = pa.table(columns)
    if count is not None and count < table.num_rows:
        dataset = datasets.Dataset(table)
        order = dataset.shuffle(seed=seed) if split == "train" else dataset
        table = order.select(range(count)).with_format("arrow")[:]
    return table


def _task(name: str, glue: _Glue) -> Task:
    head: HeadKind = "sequence" if glue.labels else "regression"
    return Task(
        name=name,
        head=head,
        labels=glue.labels,
        metric=glue.metric,
        pair=len(glue.columns) == 2,
        load=partial(_load, name, glue),
        problems=partial(_problems, name, glue),
    )


def tasks() -> dict[str, Task]:
    """All GLUE tasks by name."""
    return {name: _task(name, glue) for name, glue in _TASKS.items()}
