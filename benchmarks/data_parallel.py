"""Two workers against one: steps of a trial, each worker with one thread of its own.

An encoder of MiniLM's shape (6 layers of 384, random weights), batch 32 of a task of the embedded
language, gloo on this machine's loopback; dense, and under L0 masks, where each worker's masks are
its own, so that the pruner exchanges the gradients. Both do the same rows per step. Rounds in
turns: five steps of one worker, then five of the two.
"""

import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from _encoders import make_encoder
from _measure import print_ratios, print_table

import bermo_ray as br
from bermo_ray.training.loop import take_step
from bermo_ray.training.malloc import keep_freed_memory
from bermo_ray.training.setup import set_up

ROUNDS, STEPS = 7, 5
METHODS: dict[str, br.L0 | None] = {"dense": None, "l0": br.L0(flat_start=0, flat_end=0)}


def work(rank: int, world_size: int, encoder: str, folder: str, orders: Connection) -> None:
    """A worker's life: for each order, the name of a method, a round of its steps."""
    torch.set_num_threads(1)
    keep_freed_memory()
    if world_size > 1:
        dist.init_process_group(
            "gloo", f"file://{folder}/meeting", rank=rank, world_size=world_size
        )
    runs: dict[str, Any] = {}
    for name, pruning in METHODS.items():
        trial = br.Trial(
            data=br.Data(task="tense", train_rows=640, dev_rows=20), backbone=encoder,
            pruning=pruning, epochs=50, batch_size=32,
        )  # fmt: skip
        run = runs[name] = set_up(trial, world_size, torch.device("cpu"))
        run.wrap_network()
        run.start_training()
    steps = dict.fromkeys(METHODS, 0)
    while (name := orders.recv()) is not None:
        started = time.perf_counter()
        for _ in range(STEPS):
            steps[name] += 1
            first = steps[name] * 32 % 640
            take_step(runs[name], steps[name], torch.arange(first, first + 32).numpy(), rank)
        orders.send(time.perf_counter() - started)
    if world_size > 1:
        dist.destroy_process_group()


def main() -> None:
    """Starts one worker alone and two together, and has them work in turns."""
    os.environ["BERMO_CACHE"] = "off"
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="bermo-bench-") as folder:
        encoder = make_encoder(Path(folder, "encoder"), layers=6, width=384, heads=12)
        teams: dict[int, list[Any]] = {1: [], 2: []}
        processes = []
        for size, lines in teams.items():
            for rank in range(size):
                here, there = context.Pipe()
                process = context.Process(target=work, args=(rank, size, encoder, folder, there))
                process.start()
                processes.append(process)
                lines.append(here)
        seconds: dict[tuple[str, int], list[float]] = {(m, s): [] for m in METHODS for s in teams}
        for turn in range(ROUNDS + 1):  # the first warms up
            for method, size in seconds:
                for line in teams[size]:
                    line.send(method)
                taken = max(line.recv() for line in teams[size])
                if turn:
                    seconds[method, size].append(taken / STEPS)
        for lines in teams.values():
            for line in lines:
                line.send(None)
        for process in processes:
            process.join()
    rows, ratios = [], {}
    for method in METHODS:
        one, two = (seconds[method, size] for size in teams)
        ratios[f"{method}_two_workers"] = statistics.median(
            a / b for a, b in zip(one, two, strict=True)
        )
        times = [f"{statistics.median(values) * 1e3:.0f} ms" for values in (one, two)]
        rows.append([method, *times, f"{ratios[f'{method}_two_workers']:.2f}"])
    print_table("A step of 32 rows", ["", "one worker", "two", "faster"], rows)
    print_ratios(ratios)


if __name__ == "__main__":
    main()
