"""How fast trials of a store were that are like one that is to be run."""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.frontier import measured
from bermo_ray.trial import Trial

_CPU_WORD = "thread(s)"  # in the hardware of a trial that ran without a GPU


@dataclass(frozen=True)
class RecordedSpeed:
    """Medians over trials."""

    rows_per_second: float  # of training
    other_seconds: float  # that a trial took besides its steps: its start, its evaluations
    trials: int


def find_recorded_speed(
    table: pa.Table, trial: Trial, workers: int, hardware: str | None
) -> RecordedSpeed | None:
    """The speed of trials that trained to their end with the same encoder, task, length of rows,
    batch size, mode and number of workers, pruned or not as this one; None where there are none.

    Args:
        table: Trials of any number of studies.
        trial: The one that is to be run.
        workers: That it will have.
        hardware: What it will run on; None: on GPUs of a kind that is not known.
    """
    rows = list(_select_alike(table, trial, workers, hardware))
    if not rows:
        return None
    others = [
        row["seconds"] - row["step"] * row["batch_size"] / row["rows_per_second"]
        for row in rows
        if row["seconds"] is not None
    ]
    other_seconds = max(0.0, statistics.median(others)) if others else 0.0
    speed = statistics.median(row["rows_per_second"] for row in rows)
    return RecordedSpeed(speed, other_seconds, len(rows))


def _select_alike(
    table: pa.Table, trial: Trial, workers: int, hardware: str | None
) -> Iterator[dict[str, Any]]:
    same = {
        "task": trial.data.task,
        "backbone": trial.backbone,
        "batch_size": trial.batch_size,
        "mode": trial.mode,
        "workers": workers,
    }
    table = measured(table)
    mask = pc.greater(table["rows_per_second"], 0)
    for column, value in same.items():
        mask = pc.and_(mask, pc.equal(table[column], value))
    for row in table.filter(pc.fill_null(mask, False)).to_pylist():
        is_pruned = row["method"] != "dense"
        length = json.loads(row["trial_json"])["data"]["max_length"]
        if (is_pruned, length) != (trial.pruning is not None, trial.data.max_length):
            continue
        used = row["hardware"] or _CPU_WORD
        if used == hardware or (hardware is None and _CPU_WORD not in used):
            yield row
