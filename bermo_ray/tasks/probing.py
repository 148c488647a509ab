"""SentEval's ten probing tasks (Conneau et al., 2018).

``senteval/<task>/<part>.parquet``, or ``senteval/<task>.txt`` as SentEval has it: a line is the
part (tr, va, te), the class, and last the sentence, between tabs. ``senteval_rebuilt`` is a folder
of the same tasks from other sentences; it has names of its own so that it is never taken for them.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.tasks.source import Hub, Reader, Source, lines, parquet
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


def original(file: Path, part: str) -> pa.Table:
    """The rows of one part of a SentEval file."""
    sentences, labels = [], []
    for number, line in lines(file):
        fields = line.split("\t")
        if len(fields) < 3 or fields[0] not in _PARTS.values():
            raise UserError(f"{file}: line {number}: expected tr, va or te, a class and a sentence")
        if fields[0] == _PARTS[part]:
            labels.append(fields[1])
            sentences.append(fields[-1])
    return pa.table({"sentence": pa.array(sentences, pa.string()), "label": pa.array(labels, pa.string())})  # fmt: skip # noqa: E501


def _files(suite: str, name: str, part: str) -> Mapping[str, Reader]:
    return {f"{suite}/{name}/{part}.parquet": parquet, f"{suite}/{name}.txt": original}


def tasks() -> dict[str, Task]:
    """All probing tasks by name."""
    found = {}
    for suite, hub in (("senteval", _HUB), ("senteval_rebuilt", None)):
        for name, labels in _LABELS.items():
            source = Source(
                partial(_files, suite, name), Hub(hub, name, converted=True) if hub else None
            )
            full = f"{suite}/{name}"
            found[full] = Task(
                full, "sequence", labels, "accuracy", False, source.rows,
                {"text": "sentence"}, open_labels=not labels,
            )  # fmt: skip
    return found
