"""Does a learned multiplier land where it is asked to? One run for each density (methods §2).

    python tools/learned_multiplier.py
    python tools/learned_multiplier.py --task sst2 --backbone ../shared/models/all-MiniLM-L6-v2 \\
        --data-dir ../shared/data --train-rows 3200 --epochs 4 --learning-rate 1e-4 --mask-rate 0.1
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table

from bermo_ray.study import command
from bermo_ray.training.check import check
from bermo_ray.training.trainer import run_locally
from bermo_ray.trial import Data, Optimizer, Pruning, Trial


@dataclass
class Options:
    """Runs one trial for each target density and prints what came out."""

    method: Literal["l0", "soft_movement"] = "l0"
    targets: tuple[float, ...] = (0.5, 0.2, 0.1, 0.05)
    task: str = "tense"
    backbone: str = "embedded"
    data_dir: str | None = None
    train_rows: int | None = None
    dev_rows: int | None = None
    max_length: int = 64
    epochs: int = 10
    learning_rate: float = 1e-3
    mask_rate: float = 0.15
    seed: int = 0
    threads: int = 2


def trial(options: Options, target: float) -> Trial:
    """The trial that asks for that density."""
    tau = 0.1 if options.method == "soft_movement" else 1.0
    return Trial(
        data=Data(
            task=options.task,
            train_rows=options.train_rows,
            dev_rows=options.dev_rows,
            max_length=options.max_length,
            data_dir=options.data_dir and str(Path(options.data_dir).resolve()),
        ),
        backbone=options.backbone,
        pruning=Pruning(
            method=options.method,
            target=target,
            initial_threshold=tau,
            final_threshold=tau,
            final_warmup=2,
        ),
        optimizer=Optimizer(
            learning_rate=options.learning_rate, mask_rate=options.mask_rate, warmup=0.05
        ),
        epochs=options.epochs,
        evaluations=4,
        seed=options.seed,
    )


def main() -> None:
    """Trains, prints a table."""
    options = tyro.cli(Options)
    check([trial(options, target) for target in options.targets])
    table = Table(title=f"{options.method} on {options.task}", title_justify="left", box=None)
    for column in ("asked", "density", "off by, points", "metric", "λ at the end", "s"):
        table.add_column(column, justify="right")
    for target in options.targets:
        start = time.perf_counter()
        last = run_locally(trial(options, target), threads=options.threads)[-1]
        row = [
            f"{target:.1%}",
            f"{last['density']:.3%}",
            f"{100 * (last['density'] - target):+.3f}",
        ]
        row += [f"{last['metric']:.4f}", f"{last['lambda']:.3g}"]
        table.add_row(*row, f"{time.perf_counter() - start:.0f}")
        print(f"{target:g}: density {last['density']:.4f}, {last['status']} {last['reason']}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    command(main)()
