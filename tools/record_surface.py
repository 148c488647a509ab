"""Records real L0 trials over a wide box of λ and rates, for `benchmarks/_surface.py`.

Points are a scrambled Sobol sequence, so that any number of them covers the box evenly; each is one
trial of the shipped encoder on `tense`, run without Ray. What is already in the file is kept.

    python tools/record_surface.py benchmarks/surface.parquet --each 128
"""

import json
import math
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import tyro

from bermo_ray.search.space import LogUniform
from bermo_ray.trial import L0, Data, Penalized, Trial

RANGES = {
    "pruning.multiplier": LogUniform(1.0, 60.0),
    "optimizer.learning_rate": LogUniform(1.5e-4, 3e-3),
    "optimizer.score_learning_rate": LogUniform(1e-2, 2e-1),
}
FUSIONS = ("last", "bermo")


@dataclass(frozen=True)
class Options:
    """Record trials."""

    file: Annotated[Path, tyro.conf.Positional]
    """Where they are kept, as parquet."""
    each: int = 128
    """Trials of each fusion."""
    processes: int = 2
    """Trials at once."""


def make_trials(each: int) -> list[Trial]:
    """A dense baseline of each fusion, then the pruned ones, fusions in turn. BERMo's scalars train
    at the rate of the mask scores, as in the paper."""
    from scipy.stats import qmc

    base = Trial(data=Data(task="tense"), epochs=3, batch_size=16, evaluations_per_epoch=2)
    middle = RANGES["optimizer.learning_rate"].quantile(0.5)
    dense = [base.replace(fusion=f, optimizer={"learning_rate": middle}) for f in FUSIONS]
    pruned = []
    for point in qmc.Sobol(len(RANGES), seed=0).random(each):
        values = {
            key: span.quantile(float(share))
            for (key, span), share in zip(RANGES.items(), point, strict=True)
        }
        last, bermo = (base.replace(pruning=L0(), fusion=f).replace(values) for f in FUSIONS)
        rate = bermo.optimizer.score_learning_rate
        pruned += [last, bermo.replace(optimizer={"fusion_learning_rate": rate})]
    return dense + pruned


def measure(trial_json: str) -> dict[str, Any]:
    """One trial, as a row; ``curve`` holds (step, density, metric) of each evaluation."""
    from bermo_ray.training.reporter import run_locally

    trial = Trial.from_json(trial_json)
    reports = run_locally(trial)
    last, pruning = reports[-1], trial.pruning
    return {
        "fusion": trial.fusion.name,
        "method": pruning.method if pruning else "dense",
        "multiplier": pruning.multiplier if isinstance(pruning, Penalized) else None,
        "learning_rate": trial.optimizer.learning_rate,
        "score_learning_rate": trial.optimizer.score_learning_rate,
        "status": str(last.status),
        "remaining": last.remaining,
        "metric": _or_none(last.metric),
        "constant_metric": _or_none(last.constant_metric),
        "curve": json.dumps([[r.step, r.density, _or_none(r.metric)] for r in reports]),
        "trial": trial_json,
    }


def _or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


def main() -> None:
    """Runs what is missing; the file is replaced in one move after every ten."""
    options = tyro.cli(Options, description=__doc__)
    rows = pq.read_table(options.file).to_pylist() if options.file.is_file() else []
    recorded = {Trial.from_json(row["trial"]).id for row in rows}
    todo = [t.to_json() for t in make_trials(options.each) if t.id not in recorded]
    with get_context("spawn").Pool(options.processes) as pool:
        for number, row in enumerate(pool.imap(measure, todo), 1):
            rows.append(row)
            if number % 10 == 0 or number == len(todo):
                partial = options.file.with_suffix(".partial")
                pq.write_table(pa.Table.from_pylist(rows), partial, compression="zstd")
                partial.replace(options.file)
                print(f"{number}/{len(todo)}", flush=True)


if __name__ == "__main__":
    main()
