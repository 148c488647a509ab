"""`features` mode: 50 epochs over 1,000 rows from the cache, against computing the states anew.

The shipped encoder under BERMo on a task of the embedded language; writing the cache is part of
the time, and every cached run starts empty. Interleaved, median of five. Recomputing costs the
same in every epoch, so a round runs 10 of its 50 epochs and counts nine of them 49/9 times; one
run of all 50 gives the metric.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence

import torch
from _measure import show

from bermo_ray.cache import CACHE_VARIABLE
from bermo_ray.record import Report
from bermo_ray.training.checkpoint_folder import SaveCheckpoint
from bermo_ray.training.loop import train
from bermo_ray.training.reporter import LocalReporter
from bermo_ray.trial import Data, Fusion, Optimizer, Trial

TRIAL = Trial(
    data=Data(task="tense", train_rows=1000, dev_rows=100),
    fusion=Fusion(name="bermo"),
    optimizer=Optimizer(learning_rate=1e-3),
    mode="features",
    epochs=50,
)


class Clock(LocalReporter):
    """Remembers when each epoch was reported."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        """Remembers the report and its time."""
        super().report(report, save, history)
        self.times.append(time.perf_counter())


def timed(trial: Trial) -> tuple[list[Report], float]:
    """All reports of a run, and its seconds, stretched to 50 epochs."""
    torch.set_num_threads(2)
    start, clock = time.perf_counter(), Clock()
    train(trial, clock)
    seconds = time.perf_counter() - start
    per_epoch = (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1)
    return clock.reports, seconds + per_epoch * (TRIAL.epochs - len(clock.times))


def main() -> None:
    """Measures cached and recomputed."""
    seconds: dict[str, list[float]] = {"recomputed": [], "cached": []}
    last: dict[str, Report] = {}
    folder = tempfile.mkdtemp(prefix="bermo-bench-")
    for turn in range(5):
        for name in seconds:
            shutil.rmtree(folder, ignore_errors=True)
            os.environ[CACHE_VARIABLE] = "off" if name == "recomputed" else folder
            short = name == "recomputed" and turn > 0
            reports, taken = timed(TRIAL.replace(epochs=10) if short else TRIAL)
            seconds[name].append(taken)
            if not short:
                last[name] = reports[-1]
    shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        [name, f"{medians[name]:.1f} s", f"{last[name].metric:.4f}", f"{last[name].loss:.6f}"]
        for name in medians
    ]
    ratios = {
        "speedup": medians["recomputed"] / medians["cached"],
        "metric_difference": abs(last["cached"].metric - last["recomputed"].metric),
    }
    show("features mode, 50 epochs × 1,000 rows", ["", "time", "metric", "loss"], rows, ratios)


if __name__ == "__main__":
    main()
