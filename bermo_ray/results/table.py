"""MLflow -> Arrow: one tidy table, one row a trial."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from bermo_ray import tracking
from bermo_ray.errors import UserError
from bermo_ray.trial import Trial

RUNS = "runs"  # the default folder of a study's records

_T = pa.timestamp("ms", tz="UTC")
# (column, type, where it comes from, what it is). Null where a run has no such value.
_COLUMNS: tuple[tuple[str, pa.DataType, str, str], ...] = (
    ("study", pa.string(), "tag bermo.study", "name of the study"),
    ("run_id", pa.string(), "", "MLflow's id of the trial's run"),
    ("trial_id", pa.string(), "tag bermo.trial", "identity of the Trial (hash of its content)"),
    ("recipe", pa.string(), "tag bermo.recipe", "identity of the Trial but for its seed"),
    ("status", pa.string(), "tag bermo.status", "completed, diverged, failed, interrupted, …"),
    ("reason", pa.string(), "tag bermo.reason", "why it diverged or failed"),
    ("task", pa.string(), "param data.task", ""),
    ("backbone", pa.string(), "param backbone", ""),
    ("fusion", pa.string(), "param fusion.name", ""),
    ("method", pa.string(), "param pruning.method", "pruning method; 'dense' for none"),
    ("strategy", pa.string(), "param layer_drop.strategy", "of layer dropping; null for none"),
    ("count", pa.int64(), "", "layers dropped"),
    ("dropped", pa.string(), "tag bermo.dropped", "which, counted from 1, as a JSON list"),
    ("layers", pa.int64(), "metric layers", "layers left"),
    ("mode", pa.string(), "param mode", "finetune or features"),
    ("seed", pa.int64(), "param seed", ""),
    ("epochs", pa.int64(), "param epochs", ""),
    ("batch_size", pa.int64(), "param batch_size", "over all workers"),
    ("workers", pa.int64(), "param run.workers", ""),
    ("final_lambda", pa.float64(), "param pruning.final_lambda", "λ at the end"),
    ("learning_rate", pa.float64(), "param optimizer.learning_rate", ""),
    ("mask_rate", pa.float64(), "param optimizer.mask_rate", ""),
    ("metric", pa.float64(), "metric metric", "the task's own metric on dev, at the end"),
    ("first_half", pa.float64(), "metric first_half", "the metric on one half of dev"),
    ("second_half", pa.float64(), "metric second_half", "and on the other"),
    ("others", pa.string(), "", "further metrics and dev sets of the task, as JSON"),
    ("loss", pa.float64(), "metric loss", "on dev"),
    ("train_loss", pa.float64(), "metric train_loss", "mean since the evaluation before"),
    ("trivial", pa.float64(), "metric trivial", "what a constant answer reaches"),
    ("remaining", pa.float64(), "metric remaining", "share of the encoder's parameters left"),
    ("density", pa.float64(), "metric density", "share of the prunable weights left"),
    ("nonzero", pa.int64(), "metric nonzero", "non-zero parameters of the whole model"),
    ("parameters", pa.int64(), "metric parameters", "all parameters of the whole model"),
    ("rows_per_second", pa.float64(), "metric rows_per_second", "training speed"),
    ("latency", pa.float64(), "metric latency", "seconds of a forward where it was trained"),
    ("bytes", pa.int64(), "metric bytes", "of all weights, stored dense"),
    ("started", _T, "", ""),
    ("seconds", pa.float64(), "", "wall time from first start to end"),
    ("checkpoint", pa.string(), "tag bermo.checkpoint", "where the newest one lies"),
    ("trial", pa.string(), "tag bermo.trial_json", "the Trial as JSON, complete"),
)  # fmt: skip

SCHEMA = pa.schema(
    [pa.field(n, t, metadata={"from": f, "meaning": m}) for n, t, f, m in _COLUMNS],
    metadata={"bermo_ray.schema": "3"},
)


def load(study: str, uri: str | None = None) -> pa.Table:
    """All trials of a study, in order of their start, with :data:`SCHEMA`.

    ``uri`` is an MLflow store; without one, MLFLOW_TRACKING_URI's or the one in ``./runs``.

    Raises:
        UserError: no such study in that store.
    """
    uri = tracking.store_uri(Path(RUNS), uri)
    parent = tracking.find_study(uri, study)
    if parent is None:
        raise UserError(f"no study {study!r} in {uri}")
    store = tracking.client(uri)
    rows = [_row(run) for run in tracking.trial_runs(store, parent.info.run_id)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def predictions(run: str, uri: str | None = None) -> pa.Table:
    """A trial's answers on its dev set, by its id: ``row``, ``target``, ``predicted``."""
    return tracking.predictions(tracking.store_uri(Path(RUNS), uri), run)


def _row(run: Any) -> dict[str, Any]:
    data = {"tag": run.data.tags, "param": run.data.params, "metric": run.data.metrics}
    row: dict[str, Any] = {}
    for name, kind, source, _ in _COLUMNS:
        if source:
            place, _, key = source.partition(" ")
            value = data[place].get(key)
            row[name] = _cast(value, kind)
    row["run_id"] = run.info.run_id
    prefix = tracking.OTHER
    others = {k: v for k, v in run.data.metrics.items() if k.startswith(prefix)}
    row["others"] = json.dumps({k.removeprefix(prefix): v for k, v in sorted(others.items())})
    row["recipe"] = row["recipe"] or Trial.from_json(row["trial"]).recipe  # before version 3
    row["method"] = row["method"] or "dense"
    row["dropped"] = row["dropped"] or "[]"
    row["count"] = len(json.loads(row["dropped"]))
    row["started"] = run.info.start_time
    if run.info.end_time:
        row["seconds"] = (run.info.end_time - run.info.start_time) / 1000
    return row


def _cast(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_integer(kind):
        return int(float(value))
    return float(value) if pa.types.is_floating(kind) else value
