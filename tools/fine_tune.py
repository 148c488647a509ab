"""Fine-tunes one dense trial without Ray and prints every evaluation: a first look at a task.

    python tools/fine_tune.py --task sst2 --backbone ../shared/models/all-MiniLM-L6-v2 \\
        --data-dir ../shared/data --train-rows 6400
"""

import time
from dataclasses import dataclass, fields
from pathlib import Path

import tyro

from bermo_ray.command_line.program import run_command
from bermo_ray.training.check import check_trials
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial


@dataclass
class Options:
    """Which task, on what, for how long."""

    task: str = "tense"
    backbone: str = "embedded"
    data_dir: str | None = None
    train_rows: int | float | None = None
    dev_rows: int | float | None = None
    max_length: int = 128
    epochs: int = 3
    batch_size: int = 32
    evaluations_per_epoch: int = 1
    learning_rate: float = 1e-4
    seed: int = 0
    threads: int = 2


def main() -> None:
    """Trains, prints a line for each evaluation."""
    options = tyro.cli(Options)
    trial = Trial(
        data=Data(
            task=options.task,
            train_rows=options.train_rows,
            dev_rows=options.dev_rows,
            max_length=options.max_length,
            data_dir=options.data_dir and str(Path(options.data_dir).resolve()),
        ),
        backbone=options.backbone,
        optimizer=Optimizer(learning_rate=options.learning_rate),
        epochs=options.epochs,
        batch_size=options.batch_size,
        evaluations_per_epoch=options.evaluations_per_epoch,
        seed=options.seed,
    )
    check_trials([trial])
    start = time.perf_counter()
    reports = run_locally(trial, threads=options.threads)
    for report in reports:
        others = "".join(f", {k} {v:.4f}" for k, v in report.other_metrics.items())
        print(
            f"{options.task}, epoch {report.epoch:.2f}: metric {report.metric:.4f}{others} "
            f"(a constant answer {report.constant_metric:.4f}), loss {report.loss:.4f}, "
            f"{report.rows_per_second:.0f} rows/s"
        )
    seconds = time.perf_counter() - start
    print(f"{reports[-1].status} {reports[-1].reason} in {seconds:.0f} s, trial {trial.id}")


if __name__ == "__main__":
    run_command(main, {field.name: field.name for field in fields(Options)})
