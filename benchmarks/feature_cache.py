"""`features` mode: 50 epochs over 1,000 rows from the cache, against computing the states anew.

The shipped encoder under BERMo on a task of the embedded language; writing the cache is part of
the time. One run of each a round, interleaved, median of five; every cached run starts empty.
"""

import os
import shutil
import statistics
import tempfile
import time

from _measure import show

from bermo_ray.training.features import CACHE_VARIABLE
from bermo_ray.training.trainer import run_locally
from bermo_ray.trial import Data, Fusion, Optimizer, Trial

TRIAL = Trial(
    data=Data(task="tense", train_rows=1000, dev_rows=100),
    fusion=Fusion(name="bermo"),
    optimizer=Optimizer(learning_rate=1e-3),
    mode="features",
    epochs=50,
)


def main() -> None:
    """Measures cached and recomputed."""
    seconds: dict[str, list[float]] = {"recomputed": [], "cached": []}
    last: dict[str, dict[str, float]] = {}
    folder = tempfile.mkdtemp(prefix="bermo-bench-")
    for _ in range(5):
        for name in seconds:
            shutil.rmtree(folder, ignore_errors=True)
            os.environ[CACHE_VARIABLE] = "off" if name == "recomputed" else folder
            start = time.perf_counter()
            last[name] = run_locally(TRIAL, threads=2)[-1]
            seconds[name].append(time.perf_counter() - start)
    shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        [name, f"{medians[name]:.1f} s", f"{last[name]['metric']:.4f}", f"{last[name]['loss']:.6f}"]
        for name in medians
    ]
    ratios = {
        "speedup": medians["recomputed"] / medians["cached"],
        "metric_difference": abs(last["cached"]["metric"] - last["recomputed"]["metric"]),
    }
    show("features mode, 50 epochs × 1,000 rows", ["", "time", "metric", "loss"], rows, ratios)


if __name__ == "__main__":
    main()
