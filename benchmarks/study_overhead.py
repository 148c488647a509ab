"""What a study costs besides its training, and whether a long one gets slower.

First the default study as its script runs it: how much of its time (both cores, from the call to
the last file) is neither a training step nor an evaluation. Then trivial trials, one after the
other: each is one step on four rows of a random encoder of width 32, through all that a study does
with a trial: plan, log, Ray Tune, training loop, checkpoint, journal, MLflow. The first tenth warms
up (Ray, imports, allocator); the tenths behind it are compared. Then what a reader does: load the
study's table, and fetch the first page of runs as MLflow's list does, beside a study of a tenth as
many.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _training_clock
import psutil
import tyro
from _encoders import make_encoder
from _measure import interleaved, print_ratios, print_table

import bermo_ray as br
from bermo_ray import results
from bermo_ray.record import Report
from bermo_ray.tracking.store import connect, find_study
from bermo_ray.trial import Trial

PARTS = 10
PAGE = 100  # runs that MLflow's list asks for at once


@dataclass(frozen=True)
class Options:
    """How large."""

    trials: int = 500
    """Trivial trials."""
    default: bool = True
    """Whether the default study is run as well: four minutes."""


@dataclass
class Clock:
    """A listener of a study that notes, at each trial's end, the time and the driver's memory."""

    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def on_report(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        """Takes note of the ends."""
        if reports[-1].status.ended:
            self.seconds.append(time.perf_counter())
            self.megabytes.append(psutil.Process().memory_info().rss / 1e6)

    def on_open(self, most_trials: int, concurrent: int, where: str) -> None:
        """Nothing to note."""

    def on_start(self, attempt: str, trial: Trial) -> None:
        """Nothing to note."""

    def on_known(self, attempt: str, trial: Trial, report: Report) -> None:
        """Nothing to note."""

    def on_progress(self, attempt: str, share: float) -> None:
        """Nothing to note."""

    def on_refresh(self) -> None:
        """Nothing to note."""

    def on_close(self) -> None:
        """Nothing to note."""

    def part_seconds(self) -> list[float]:
        """The time that each tenth of the trials took, but for the first, which warms up."""
        size = len(self.seconds) // PARTS
        ends = self.seconds[size - 1 :: size]
        return [end - start for start, end in itertools.pairwise(ends)]


def run_study(name: str, trials: int, encoder: str, runs: Path) -> Clock:
    """Runs a study of so many trivial trials; all of them must be in its table, once."""
    base = br.Trial(
        data=br.Data(task="tense", train_rows=4, dev_rows=4),
        backbone=encoder,
        pruning=br.L0(flat_start=0, flat_end=0),
        optimizer=br.Optimizer(warmup=0),
        epochs=1,
        batch_size=4,
    )
    clock = Clock()
    grid = br.Grid(base.vary(seed=range(trials)))
    study = br.Study(name, grid, store=br.Store(runs), concurrent=1, listeners=[clock], reuse=False)
    seeds = study.run().table["seed"].to_pylist()
    assert seeds == list(range(trials)), "a trial is missing or twice"
    return clock


def measure_overhead(folder: Path) -> tuple[float, float]:
    """Seconds of the default study, and the share of it, on all its cores, that is overhead."""
    clock, root = folder / "clock", Path(__file__).parents[1]
    call = [
        sys.executable,
        str(root / "studies" / "l0_frontier.py"),
        "--runs",
        str(folder / "runs"),
    ]
    path = os.pathsep.join([str(root / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    variables = {_training_clock.FILE_VARIABLE: str(clock), "PYTHONPATH": path}
    started = time.perf_counter()
    subprocess.run(
        [*call, "--plugin", _training_clock.__name__],
        env=os.environ | variables | {"RAY_ADDRESS": "local"}, check=True, capture_output=True,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    trained = sum(map(float, clock.read_text().split()))
    return seconds, 1 - trained / (seconds * (os.cpu_count() or 1))


def list_runs(uri: str, name: str) -> int:
    """The first page of a study's runs, as MLflow's list asks for it."""
    run: Any = find_study(uri, name)
    page = connect(uri).search_runs(
        [run.info.experiment_id],
        f"tags.`mlflow.parentRunId` = '{run.info.run_id}'",
        max_results=PAGE,
        order_by=["attributes.start_time DESC"],
    )
    return len(page)


def main(options: Options) -> None:
    """Runs a short study and a long one, then reads both."""
    os.environ["BERMO_CACHE"] = tempfile.mkdtemp(prefix="bermo-bench-")
    with tempfile.TemporaryDirectory(prefix="bermo-bench-") as folder:
        ratios: dict[str, float] = {}
        if options.default:
            seconds, ratios["overhead_share"] = measure_overhead(Path(folder))
            print(f"the default study: {seconds:.0f} s, {ratios['overhead_share']:.1%} overhead")
        encoder, runs = (
            make_encoder(Path(folder, "encoder"), layers=2, width=32, heads=2),
            Path(folder, "many"),
        )
        short, long = options.trials // PARTS, options.trials
        run_study("short", short, encoder, runs)
        clock = run_study("long", long, encoder, runs)
        uri = br.Store(runs).uri
        calls = {
            f"{what}, {name}": (lambda read=read, name=name: read(name))
            for name in ("short", "long")
            for what, read in (
                ("table", lambda name: results.load(name, uri)),
                ("page", lambda name: list_runs(uri, name)),
            )
        }
        reading = interleaved(calls, rounds=7)
    shutil.rmtree(os.environ["BERMO_CACHE"])
    parts = clock.part_seconds()
    size = long // PARTS
    grown = clock.megabytes[-1] - clock.megabytes[size - 1]
    rows = [
        [f"{(i + 1) * size} to {(i + 2) * size}", f"{part / size * 1e3:.0f} ms",
         f"{clock.megabytes[(i + 2) * size - 1]:.0f} MB"]
        for i, part in enumerate(parts)
    ]  # fmt: skip
    print_table(f"{long} trivial trials", ["trials", "per trial", "driver's memory"], rows)
    rows = [
        [f"{what} of {count} trials", f"{reading[f'{what}, {name}'] * 1e3:.0f} ms"]
        for what in ("table", "page")
        for name, count in (("short", short), ("long", long))
    ]
    print_table("Reading", ["", "time"], rows)
    print_ratios(
        ratios
        | {
            "last_over_first": parts[-1] / parts[0],
            "driver_mb_per_1000": grown / (long - size) * 1000,
            "table_per_trial": reading["table, long"] / reading["table, short"] / PARTS,
            "page": reading["page, long"] / reading["page, short"],
        }
    )


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
