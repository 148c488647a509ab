"""Does a learned multiplier land where it is asked to? A run for each density (docs/methods.md §2).

    python tools/learned_multiplier.py
    python tools/learned_multiplier.py --task sst2 --backbone ../shared/models/all-MiniLM-L6-v2 \\
        --data-dir ../shared/data --train-rows 3200 --epochs 4 --learning-rate 1e-4 \\
        --score-learning-rate 0.1
"""

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table

from bermo_ray.command_line.program import run_command
from bermo_ray.training.check import check_trials
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import L0, Data, Optimizer, Pruning, SoftMovement, Trial

THRESHOLD = 0.1  # τ of soft movement over the whole run: λ alone is to make it sparse


@dataclass
class Options:
    """Runs one trial for each target density and prints what came out."""

    method: Literal["l0", "soft_movement"] = "l0"
    target_densities: tuple[float, ...] = (0.5, 0.2, 0.1, 0.05)
    task: str = "tense"
    backbone: str = "embedded"
    data_dir: str | None = None
    train_rows: int | None = None
    dev_rows: int | None = None
    max_length: int = 64
    epochs: int = 10
    learning_rate: float = 1e-3
    score_learning_rate: float = 0.15
    seed: int = 0
    threads: int = 2


def make_pruning(method: str, density: float) -> Pruning:
    """The method's settings with a multiplier that is learned for that density."""
    if method == "l0":
        return L0(target_density=density, flat_end=2)
    return SoftMovement(
        target_density=density, flat_end=2, initial_threshold=THRESHOLD, final_threshold=THRESHOLD
    )


def make_trial(options: Options, density: float) -> Trial:
    """The trial that asks for that density."""
    return Trial(
        data=Data(
            task=options.task,
            train_rows=options.train_rows,
            dev_rows=options.dev_rows,
            max_length=options.max_length,
            data_dir=options.data_dir and str(Path(options.data_dir).resolve()),
        ),
        backbone=options.backbone,
        pruning=make_pruning(options.method, density),
        optimizer=Optimizer(
            learning_rate=options.learning_rate,
            score_learning_rate=options.score_learning_rate,
            warmup=0.05,
        ),
        epochs=options.epochs,
        evaluations_per_epoch=4,
        seed=options.seed,
    )


def main() -> None:
    """Trains, prints a table."""
    options = tyro.cli(Options)
    trials = {density: make_trial(options, density) for density in options.target_densities}
    check_trials(list(trials.values()))
    table = Table(title=f"{options.method} on {options.task}", title_justify="left", box=None)
    columns = ("asked", "before shift", "density", "off by, points", "metric", "λ at the end", "s")
    for column in columns:
        table.add_column(column, justify="right")
    for density, trial in trials.items():
        start = time.perf_counter()
        last = run_locally(trial, threads=options.threads)[-1]
        table.add_row(
            f"{density:.1%}",
            f"{last.density_before_shift:.3%}",
            f"{last.density:.3%}",
            f"{100 * (last.density - density):+.3f}",
            f"{last.metric:.4f}",
            f"{last.multiplier_now:.3g}",
            f"{time.perf_counter() - start:.0f}",
        )
        print(f"{density:g}: density {last.density:.4f}, {last.status} {last.reason}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    run_command(main, {field.name: field.name for field in fields(Options)})
