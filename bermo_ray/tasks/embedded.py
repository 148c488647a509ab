"""The embedded language's tasks: generated where they are needed, no files, no network."""

import hashlib
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa

from bermo_ray.language import tasks as language
from bermo_ray.language.dialects import DIALECTS, TASK, generate_dialect
from bermo_ray.tasks.heads import HEADS
from bermo_ray.tasks.sources import Rows
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Data

# Rows of a part when the trial names no number: it could be generated without end.
_DEFAULT_ROWS = {"train": 800, "dev": 500, "test": 500}
# The embedded language is one corpus: a trial's seed decides training, never the rows.
_CORPUS_SEED = 0
_EXTRA_METRICS = {
    "span_f1": ("exact_match",),
    "masked_accuracy": ("perplexity",),
    "spearman": ("pearson",),
}


def tasks() -> dict[str, Task]:
    """All embedded tasks by name, and the dialects of one of them."""
    specs = language.TASKS | {name: replace(language.TASKS[TASK], name=name) for name in DIALECTS}
    return {name: _task(spec) for name, spec in specs.items()}


def _task(spec: language.Spec) -> Task:
    return Task(
        name=spec.name,
        head=HEADS[spec.head],
        labels=spec.labels,
        metric=spec.metric,
        pair=spec.pair,
        open_source=partial(_open, spec.name),
        extra_metrics=_EXTRA_METRICS.get(spec.metric, ()),
        dev="dev",
        test="test",
    )


def _open(name: str, data: Data, part: str) -> Rows:
    count = _count_rows(data, part)
    generate = generate_dialect if name in DIALECTS else language.generate

    @cache
    def read() -> pa.Table:
        return _with_answer_lists(generate(name, part, count, _CORPUS_SEED))

    def stamp() -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, read().schema) as stream:
            stream.write_table(read())
        return hashlib.blake2b(sink.getvalue()).digest()

    return Rows(f"task {name}, {part}", stamp, read)


def _count_rows(data: Data, part: str) -> int:
    """Rows to generate, so that the trial can take those it asks for."""
    wanted = data.train_rows if part == "train" else data.dev_rows
    return wanted if isinstance(wanted, int) else _DEFAULT_ROWS[part]


def _with_answer_lists(rows: pa.Table) -> pa.Table:
    """The one answer of each question as a list, where rows are questions."""
    for name, source in (("answers", "answer_text"), ("answer_starts", "answer_start")):
        if source in rows.column_names:
            lists = [[value] for value in rows[source].to_pylist()]
            rows = rows.append_column(name, pa.array(lists, pa.list_(rows[source].type)))
    return rows
