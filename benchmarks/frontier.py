"""Frontier functions over a table of 100,000 trials, and reading trials out of MLflow's store.

The table: 50 groups of (task, backbone, fusion), 20,000 recipes with five seeds each, one of a
hundred dense, a tenth of the rows diverged or NaN. Arms are compared on all rows as if they were of
one task and backbone. The store: SQLite, 5,000 trials of one study with all the tags,
parameters and metrics that a trial has; the baseline is a plain ``SELECT`` of those rows' tags,
parameters and latest metrics. Medians of seven rounds in turns.
"""

import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from _measure import interleaved, show

from bermo_ray import results
from bermo_ray.record import MEASUREMENTS, SCHEMA
from bermo_ray.results.frontier import GROUP
from bermo_ray.results.mixes import OBJECTIVES
from bermo_ray.tracking.store import DATABASE, connect, store_uri
from bermo_ray.tracking.study_run import environment_tags, open_study
from bermo_ray.trial import L0, Trial

ROWS, TRIALS = 100_000, 5_000
STATES = 13  # mixing weights of a twelve-layer encoder


def make_table() -> pa.Table:
    """Random trials: more weights, more metric, and noise."""
    random = np.random.default_rng(0)
    recipe = np.repeat(np.arange(ROWS // 5), 5)
    size = random.random(ROWS // 5)[recipe] + 0.01 * random.standard_normal(ROWS)
    remaining = np.clip(size, 0.001, 1)
    is_dense = recipe // 50 % 100 == 0
    remaining[is_dense] = 1
    halves = 0.5 + 0.4 * remaining**0.2 + 0.05 * random.standard_normal((2, ROWS))
    halves[:, random.random(ROWS) < 0.05] = np.nan
    constant = np.full(ROWS, 0.5)
    status = np.where(random.random(ROWS) < 0.05, "diverged", "completed")
    group = recipe % 50
    columns = {
        "task": [f"task{g % 5}" for g in group],
        "backbone": [f"encoder{g // 5 % 5}" for g in group],
        "fusion": [("last", "bermo")[g // 25] for g in group],
        "method": np.where(is_dense, "dense", "l0"),
        "status": status,
        "recipe": [str(r) for r in recipe],
        "seed": np.tile(np.arange(5), ROWS // 5),
        "remaining": remaining,
        "metric": halves.mean(axis=0),
        "metric_selection": halves[0],
        "metric_verification": halves[1],
        "metric_reported": halves[1],
        "constant_metric": constant,
        "latency": random.random(ROWS),
    }
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(ROWS, field.type)
        for field in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)


def make_store(folder: Path) -> str:
    """A store with one study: made by MLflow, filled by plain SQL with copies of a real trial."""
    uri = store_uri(folder)
    parent = open_study(uri, "l0_frontier", "many", {}, "{}")
    experiment = connect(uri).get_run(parent).info.experiment_id
    trial = Trial(pruning=L0())
    tags = environment_tags() | {
        "mlflow.parentRunId": parent, "bermo.kind": "trial", "bermo.study": "many",
        "bermo.trial_id": trial.id, "bermo.recipe": trial.recipe,
        "bermo.trial_json": trial.to_json(), "bermo.status": "completed",
        "bermo.checkpoint": "x" * 80, "bermo.workers": "1",
    }  # fmt: skip
    params = {key: str(trial.flat()[key]) for key in ("pruning.multiplier", "seed")}
    metrics = [f.key for f in MEASUREMENTS if f.source == "metric" and not f.spread]
    metrics += [f"mixing_weights/{index:02d}" for index in range(STATES)]
    ids = [f"{i:032x}" for i in range(TRIALS)]
    with sqlite3.connect(folder / DATABASE) as database:
        database.executemany(
            "INSERT INTO runs (run_uuid, name, source_type, status, start_time, end_time, "
            "lifecycle_stage, artifact_uri, experiment_id) "
            "VALUES (?, 'r', 'UNKNOWN', 'FINISHED', ?, ?, 'active', '', ?)",
            [(run, i, i + 1000, experiment) for i, run in enumerate(ids)],
        )
        database.executemany(
            "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)",
            [(k, v, run) for run in ids for k, v in tags.items()],
        )
        database.executemany(
            "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)",
            [(k, v, run) for run in ids for k, v in params.items()],
        )
        database.executemany(
            "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) "
            "VALUES (?, 0.5, 0, 1, 0, ?)",
            [(k, run) for run in ids for k in metrics],
        )
    return uri


def read_raw(file: Path) -> int:
    """Everything the store knows of the trials, as rows; gives how many."""
    with sqlite3.connect(file) as database:
        rows = 0
        for name in ("tags", "params", "latest_metrics"):
            query = (
                f"SELECT run_uuid, key, value FROM {name} WHERE run_uuid IN "
                "(SELECT run_uuid FROM tags WHERE key = 'bermo.kind' AND value = 'trial')"
            )
            rows += len(database.execute(query).fetchall())
    return rows


def main() -> None:
    """Times the functions, then the loading."""
    rows = make_table()
    last, bermo = (rows.filter(pc.equal(rows["fusion"], name)) for name in ("last", "bermo"))
    front = results.frontier(rows, by=())
    one_group = rows.drop_columns(["task", "backbone"])
    for name in ("task", "backbone"):
        one_group = one_group.append_column(name, pa.array(["one"] * ROWS))
    sizes = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    calls = {
        "frontier": lambda: results.frontier(rows),
        "frontier, each seed's": lambda: results.frontier(rows, by=(*GROUP, "seed")),
        "hypervolume": lambda: results.hypervolume(rows),
        "remaining_at": lambda: results.remaining_at(front, 0.9),
        "average_seeds": lambda: results.average_seeds(rows),
        "non_dominated, three": lambda: results.non_dominated(rows, OBJECTIVES),
        "metric_at_sizes": lambda: results.metric_at_sizes(rows, sizes),
        "efficiency": lambda: results.efficiency(last, bermo, 0.9),
        "remaining_at_levels": lambda: results.remaining_at_levels(one_group),
        "compare_arms": lambda: results.compare_arms(one_group),
        "compare_areas": lambda: results.compare_areas(one_group),
        "query, DuckDB": lambda: results.query(
            "SELECT fusion, task, min(remaining) FROM trials WHERE metric >= 0.9 GROUP BY ALL",
            trials=rows,
        ),
    }
    seconds = interleaved(calls, rounds=7)
    shown = [[name, f"{1000 * taken:.0f} ms", f"{taken:.3f}"] for name, taken in seconds.items()]
    with tempfile.TemporaryDirectory() as folder:
        uri = make_store(Path(folder))
        loads = {
            "raw": lambda: read_raw(Path(folder) / DATABASE),
            "ours": lambda: results.load("many", uri),
        }
        assert results.load("many", uri).num_rows == TRIALS
        loading = interleaved(loads, rounds=7)
    ratio = loading["ours"] / loading["raw"]
    shown += [
        [f"load {TRIALS} trials, raw SQL", f"{1000 * loading['raw']:.0f} ms", "1"],
        [f"load {TRIALS} trials, to Arrow", f"{1000 * loading['ours']:.0f} ms", f"{ratio:.2f}"],
    ]
    ratios = {
        name.removesuffix(", DuckDB").replace("'s", "").replace(",", "").replace(" ", "_"): taken
        for name, taken in seconds.items()
    }
    show(
        f"{ROWS} rows: seconds, or times raw SQL",
        ["", "time", "ratio"],
        shown,
        ratios | {"load_ratio": ratio},
    )


if __name__ == "__main__":
    main()
