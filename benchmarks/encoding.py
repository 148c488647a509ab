"""What length-sorted buckets spare: an SST-2 epoch against one with every row padded to 128.

MiniLM (6 layers, width 384), batches of 32, 2 threads, real rows from ``../shared`` or from
``BERMO_DATA`` and ``BERMO_MODEL``. An epoch is too long to run whole: each round takes eight of
its batches at random and steps on them, padded in three ways: as a training run has them (rows of
like length together), the same number of rows in random order padded to the longest of a batch,
and those padded to 128. Times are scaled to the epoch; medians of the ratios within rounds.
"""

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from _measure import show

from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.models.stock import load_stock
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import get_task
from bermo_ray.training.batches import epoch_batches
from bermo_ray.training.malloc import keep_freed_memory
from bermo_ray.trial import Data, Trial

SHARED = Path(__file__).resolve().parents[2] / "shared"
ROUNDS, SAMPLE, SIZE, LENGTH = 7, 8, 32, 128
MODEL = os.environ.get("BERMO_MODEL", str(SHARED / "models" / "all-MiniLM-L6-v2"))
DATA = os.environ.get("BERMO_DATA", str(SHARED / "data"))


class Step:
    """Forward, backward and AdamW on some rows."""

    def __init__(self, data: EncodedRows) -> None:
        torch.manual_seed(0)
        self.data, self.model = data, load_stock(MODEL, data.task).train()
        self.adam = torch.optim.AdamW(self.model.parameters(), lr=0.0, fused=True)

    def __call__(self, rows: np.ndarray, width: int | None = None) -> None:
        batch = self.data.batch(rows)
        labels = batch.pop("labels")
        if width is not None:
            short = width - batch["input_ids"].shape[1]
            batch = {name: F.pad(values, (0, short)) for name, values in batch.items()}
        torch.autograd.backward(F.cross_entropy(self.model(**batch).logits, labels))
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)


def main() -> None:
    """Measures, prints."""
    if not Path(MODEL).is_dir() or not Path(DATA).is_dir():
        sys.exit(f"error: needs an encoder in {MODEL} and data in {DATA}")
    torch.set_num_threads(2)
    keep_freed_memory()
    trial = Trial(data=Data(task="sst2", data_dir=DATA, max_length=LENGTH), batch_size=SIZE)
    task, tokenizer = get_task("sst2"), load_tokenizer(MODEL)
    data = encode_split(task, trial.data, "train", 0, tokenizer)
    ours, random = epoch_batches(data, trial, epoch=0), np.random.default_rng(0)
    step = Step(data)
    step(ours[0])
    ways = ("buckets", "random order", f"padded to {LENGTH}")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        sorted_rows = [ours[i] for i in random.choice(len(ours), SAMPLE, replace=False)]
        mixed = list(random.choice(len(data), (SAMPLE, SIZE), replace=False))
        work = ((sorted_rows, None), (mixed, None), (mixed, LENGTH))
        for way, (sample, width) in zip(ways, work, strict=True):
            start = time.perf_counter()
            for rows in sample:
                step(rows, width)
            seconds[way].append(time.perf_counter() - start)
    base = seconds[ways[0]]
    gain = {
        way: statistics.median(s / b for s, b in zip(taken, base, strict=True))
        for way, taken in seconds.items()
    }
    epoch = {way: statistics.median(v) * len(ours) / SAMPLE for way, v in seconds.items()}
    rows = [[way, f"{epoch[way] / 60:.1f} min", f"{gain[way]:.2f}"] for way in ways]
    ratios = {"epoch_speedup": gain[ways[2]], "over_random_order": gain[ways[1]]}
    show(f"An SST-2 epoch of {len(data):,} rows", ["", "epoch", "times buckets"], rows, ratios)


if __name__ == "__main__":
    main()
