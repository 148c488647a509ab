"""SentEval's ten probing tasks (Conneau et al., 2018).

``senteval/<task>/<part>.parquet``, or ``senteval/<task>.txt`` as SentEval has it: a line is the
part (tr, va, te), the class, and last the sentence, between tabs. ``senteval_rebuilt`` is a folder
of the same tasks from other sentences; its tasks have other names, so that none is taken for the
original.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.tasks.heads import CLASSIFICATION
from bermo_ray.tasks.sources import Hub, Reader, Source, read_lines, read_parquet
from bermo_ray.tasks.task import Task

_NUMBERS = ("NN", "NNS")
_LABELS: dict[str, tuple[str, ...]] = {
    "sentence_length": tuple("012345"),  # 5-8, 9-12, 13-16, 17-20, 21-25, 26-28 words
    "word_content": (),  # 1,000 words: those of the file
    "tree_depth": tuple(map(str, range(5, 13))),
    "top_constituents": (),  # 19 sequences and OTHER
    "bigram_shift": ("O", "I"),
    "past_present": ("PAST", "PRES"),
    "subj_number": _NUMBERS,
    "obj_number": _NUMBERS,
    "odd_man_out": ("O", "C"),
    "coordination_inversion": ("O", "I"),
}
_HUB = "tasksource/linguisticprobing"
_PARTS = {"train": "tr", "validation": "va", "test": "te"}


def read_senteval(file: Path, part: str) -> pa.Table:
    """The rows of one part of a SentEval file."""
    sentences, labels = [], []
    for number, line in read_lines(file):
        fields = line.split("\t")
        if len(fields) < 3 or fields[0] not in _PARTS.values():
            raise UserError(f"{file}: line {number}: expected tr, va or te, a class and a sentence")
        if fields[0] == _PARTS[part]:
            labels.append(fields[1])
            sentences.append(fields[-1])
    columns = {"sentence": sentences, "label": labels}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _files(suite: str, name: str, part: str) -> Mapping[str, Reader]:
    return {f"{suite}/{name}/{part}.parquet": read_parquet, f"{suite}/{name}.txt": read_senteval}


def _task(suite: str, name: str, labels: tuple[str, ...], hub: str | None) -> Task:
    source = Source(partial(_files, suite, name), Hub(hub, name, converted=True) if hub else None)
    return Task(
        name=f"{suite}/{name}",
        head=CLASSIFICATION,
        labels=labels,
        metric="accuracy",
        pair=False,
        open_source=source.open,
        columns={"text": "sentence"},
        test="test",
        labels_from_data=not labels,
    )


def tasks() -> dict[str, Task]:
    """All probing tasks by name."""
    suites = (("senteval", _HUB), ("senteval_rebuilt", None))
    tasks = [_task(suite, *item, hub) for suite, hub in suites for item in _LABELS.items()]
    return {task.name: task for task in tasks}
