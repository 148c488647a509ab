"""Frontier functions over a table of 100,000 trials, and reading trials out of MLflow's store.

The table: 50 groups of (task, backbone, fusion, method), 20,000 recipes with five seeds each, a
tenth of the rows diverged or NaN. The store: SQLite, 5,000 trials of one study with all the tags,
parameters and metrics that a trial has; the baseline is a plain ``SELECT`` of those rows' tags,
parameters and latest metrics. Medians of seven rounds in turns.
"""

import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from _measure import interleaved, show

from bermo_ray import results, tracking
from bermo_ray.results import SCHEMA
from bermo_ray.trial import Pruning, Trial

ROWS, TRIALS = 100_000, 5_000


def table() -> pa.Table:
    """Random trials: more weights, more metric, and noise."""
    random = np.random.default_rng(0)
    recipe = np.repeat(np.arange(ROWS // 5), 5)
    remaining = np.clip(random.random(ROWS // 5)[recipe] + 0.01 * random.standard_normal(ROWS), 0.001, 1)  # fmt: skip # noqa: E501
    metric = 0.5 + 0.4 * remaining**0.2 + 0.05 * random.standard_normal(ROWS)
    metric[random.random(ROWS) < 0.05] = np.nan
    status = np.where(random.random(ROWS) < 0.05, "diverged", "completed")
    group = recipe % 50
    columns = {
        "task": [f"task{g % 5}" for g in group],
        "backbone": [f"encoder{g // 5 % 5}" for g in group],
        "fusion": [("last", "bermo")[g // 25] for g in group],
        "method": ["l0"] * ROWS,
        "status": status,
        "recipe": [str(r) for r in recipe],
        "seed": np.tile(np.arange(5), ROWS // 5),
        "remaining": remaining,
        "metric": metric,
        "latency": random.random(ROWS),
    }
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(ROWS, f.type) for f in SCHEMA]  # fmt: skip # noqa: E501
    return pa.table(arrays, schema=SCHEMA)


def store(folder: Path) -> str:
    """A store with one study: made by MLflow, filled by plain SQL with copies of a real trial."""
    uri = tracking.store_uri(folder)
    parent = tracking.open_study(uri, "l0_frontier", "many", {}, "{}")
    client = tracking.client(uri)
    experiment = client.get_run(parent).info.experiment_id
    spec = Trial(pruning=Pruning())
    tags = tracking.facts() | {
        "mlflow.parentRunId": parent, "bermo.kind": "trial", "bermo.study": "many",
        "bermo.trial": spec.id, "bermo.recipe": spec.recipe, "bermo.trial_json": spec.to_json(),
        "bermo.status": "completed", "bermo.checkpoint": "x" * 80,
    }  # fmt: skip
    params = {k: str(v) for k, v in spec.flat().items() if v is not None}
    metrics = [*tracking.CURVES, *(f"mixing/{i:02d}" for i in range(13))]
    ids = [f"{i:032x}" for i in range(TRIALS)]
    with sqlite3.connect(folder / tracking.DATABASE) as database:
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


def raw(file: Path) -> int:
    """Everything the store knows of the trials, as rows."""
    with sqlite3.connect(file) as database:
        found = 0
        for name, value in (("tags", "value"), ("params", "value"), ("latest_metrics", "value")):
            query = (
                f"SELECT run_uuid, key, {value} FROM {name} WHERE run_uuid IN "
                "(SELECT run_uuid FROM tags WHERE key = 'bermo.kind' AND value = 'trial')"
            )
            found += len(database.execute(query).fetchall())
    return found


def main() -> None:
    """Times the functions, then the loading."""
    rows = table()
    half = {f: rows.filter(pa.array([x == f for x in rows["fusion"].to_pylist()])) for f in ("last", "bermo")}  # fmt: skip # noqa: E501
    front = results.frontier(rows, by=())
    three = {"remaining": "min", "metric": "max", "latency": "min"}
    calls = {
        "frontier": lambda: results.frontier(rows),
        "hypervolume": lambda: results.hypervolume(rows),
        "remaining_at": lambda: results.remaining_at(front, 0.9),
        "over_seeds": lambda: results.over_seeds(rows),
        "non_dominated, three": lambda: results.non_dominated(rows, three),  # type: ignore[arg-type]
        "efficiency, 1000 resamples": lambda: results.efficiency(half["last"], half["bermo"], 0.9),
        "query, DuckDB": lambda: results.query(
            "SELECT fusion, task, min(remaining) FROM trials WHERE metric >= 0.9 GROUP BY ALL",
            trials=rows,
        ),
    }
    seconds = interleaved(calls, rounds=7)
    shown = [[name, f"{1000 * taken:.0f} ms", f"{taken:.3f}"] for name, taken in seconds.items()]
    with tempfile.TemporaryDirectory() as folder:
        uri = store(Path(folder))
        loads = {
            "raw": lambda: raw(Path(folder) / tracking.DATABASE),
            "ours": lambda: results.load("many", uri),
        }
        assert results.load("many", uri).num_rows == TRIALS
        loading = interleaved(loads, rounds=7)
    ratio = loading["ours"] / loading["raw"]
    shown += [
        [f"load {TRIALS} trials, raw SQL", f"{1000 * loading['raw']:.0f} ms", "1"],
        [f"load {TRIALS} trials, to Arrow", f"{1000 * loading['ours']:.0f} ms", f"{ratio:.2f}"],
    ]
    ratios = {name.partition(",")[0].replace(" ", "_"): taken for name, taken in seconds.items()}
    show(
        f"{ROWS} rows: seconds, or times raw SQL",
        ["", "time", "ratio"],
        shown,
        ratios | {"load_ratio": ratio},
    )


if __name__ == "__main__":
    main()
