"""Every task by name."""

from functools import cache
from typing import cast

import pyarrow as pa

from bermo_ray.errors import UserError, unknown
from bermo_ray.tasks import embedded, glue
from bermo_ray.tasks.task import HeadKind, Split, Task
from bermo_ray.trial import Data

# Rows of an embedded task when the trial names no count: it could generate without end.
EMBEDDED_ROWS: dict[Split, int] = {"train": 800, "dev": 500}
# The embedded language is one corpus: a trial's seed decides training, never the rows.
EMBEDDED_SEED = 0


def _embedded_task(spec: embedded.Spec) -> Task:
    def load(data: Data, split: Split, seed: int) -> pa.Table:
        count = data.train_rows if split == "train" else data.dev_rows
        return embedded.generate(spec.name, split, count or EMBEDDED_ROWS[split], EMBEDDED_SEED)

    head = cast(HeadKind, spec.head)
    return Task(spec.name, head, spec.labels, spec.metric, spec.pair, load)


@cache
def tasks() -> dict[str, Task]:
    """All tasks: the embedded language's and GLUE's."""
    return {name: _embedded_task(spec) for name, spec in embedded.TASKS.items()} | glue.tasks()


def get(name: str) -> Task:
    """The task of that name; an unknown one raises UserError with the nearest names."""
    if name not in tasks():
        raise UserError(unknown("task", name, tasks()))
    return tasks()[name]
