"""Every task by name."""

import hashlib
from functools import cache
from typing import cast

import pyarrow as pa

from bermo_ray.errors import UserError, unknown
from bermo_ray.tasks import embedded, glue, mlm, ner, probing, squad
from bermo_ray.tasks.source import Rows
from bermo_ray.tasks.task import HeadKind, Task
from bermo_ray.trial import Data

# Rows of an embedded task when the trial names no count: it could generate without end.
EMBEDDED_ROWS = {"train": 800, "dev": 500}
# The embedded language is one corpus: a trial's seed decides training, never the rows.
EMBEDDED_SEED = 0


def _embedded_task(spec: embedded.Spec) -> Task:
    def open_(data: Data, part: str) -> Rows:
        asked = data.train_rows if part == "train" else data.dev_rows
        count = asked if isinstance(asked, int) else EMBEDDED_ROWS[part]
        if part == "dev" and data.dev_half is not None:  # halves of one set, whatever is asked
            count = max(EMBEDDED_ROWS[part], 2 * count if isinstance(asked, int) else 0)

        @cache
        def read() -> pa.Table:
            rows = embedded.generate(spec.name, part, count, EMBEDDED_SEED)
            if spec.head != "span":
                return rows
            return rows.append_column("answers", _each_alone(rows["answer_text"])).append_column(
                "answer_starts", _each_alone(rows["answer_start"])
            )

        def stamp() -> bytes:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, read().schema) as stream:
                stream.write_table(read())
            return hashlib.blake2b(sink.getvalue()).digest()

        return Rows(f"task {spec.name}, {part}", stamp, read)

    head = cast(HeadKind, spec.head)
    also = {"span": ("exact_match",), "masked": ("perplexity",), "regression": ("pearson",)}
    return Task(
        spec.name, head, spec.labels, spec.metric, spec.pair, open_, dev="dev",
        also=also.get(head, ()),
    )  # fmt: skip


def _each_alone(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([[value] for value in column.to_pylist()], pa.list_(column.type))


@cache
def tasks() -> dict[str, Task]:
    """All tasks but WikiAnn's, of which there is one a language."""
    single = (ner.conll2003(), squad.squad())
    return (
        {name: _embedded_task(spec) for name, spec in embedded.TASKS.items()}
        | glue.tasks()
        | probing.tasks()
        | {task.name: task for task in single}
        | mlm.tasks()
    )


def get(name: str) -> Task:
    """The task of that name; an unknown one raises UserError with the nearest names.

    Tasks whose classes come from their data have none yet: see :func:`resolve`.
    """
    if found := tasks().get(name) or ner.wikiann(name):
        return found
    raise UserError(unknown("task", name, [*tasks(), "wikiann/LANGUAGE"]))


def resolve(data: Data) -> Task:
    """The task of a trial's data, with all of its classes."""
    return get(data.task).resolved(data)
