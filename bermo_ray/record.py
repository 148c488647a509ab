"""What a trial tells of itself, and the one table of fields that its record is made of.

A trial reports at every evaluation; the last report carries how it ended. :class:`Report` declares
every measurement once, with its type, unit and meaning. MLflow's keys and tags, the Arrow schema of
the results and what searches are told all derive from that declaration: to add a measurement, add
one line to :class:`Report` (and measure it).
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

import pyarrow as pa

from bermo_ray.trial import Trial


class Status(StrEnum):
    """How far a trial, or a study, has come."""

    RUNNING = "running"
    COMPLETED = "completed"
    DIVERGED = "diverged"  # non-finite loss, or no better than a constant answer
    STOPPED = "stopped"  # its plan gave it up
    FAILED = "failed"  # a Python error, or its process was lost too often
    INTERRUPTED = "interrupted"  # cut off; a resumed study takes it up again

    @property
    def ended(self) -> bool:
        """Whether the trial will not go on, not even in a resumed study."""
        return self not in (Status.RUNNING, Status.INTERRUPTED)

    @property
    def measured(self) -> bool:
        """Whether it trained to its end, for better or worse."""
        return self in (Status.COMPLETED, Status.DIVERGED)


# A trial's answers on its dev set, in its last checkpoint and among its run's artifacts.
PREDICTIONS_FILE = "predictions.parquet"
# How much of each masked matrix a pruned trial kept, among its run's artifacts: the list
# ``Report.kept_by_matrix`` as JSON.
KEPT_WEIGHTS_FILE = "kept_by_matrix.json"
NAN = math.nan  # "not measured" of a float; a non-finite number is never stored


def measurement(
    meaning: str,
    unit: str = "",
    *,
    curve: bool = False,
    decides: bool = False,
    artifact: bool = False,
    default: Any = NAN,
) -> Any:
    """Declares a field of :class:`Report`.

    Args:
        meaning: What it is, for the schema's readers.
        unit: Of a number; empty for shares and counts.
        curve: Measured at every evaluation; else once, at the end.
        decides: Plans decide by it or report it, so that it is in the log that a resumed study is
            told.
        artifact: Too large for a table: kept as a file of the trial's MLflow run.
        default: What stands where it was not measured.
    """
    about = {
        "meaning": meaning,
        "unit": unit,
        "curve": curve,
        "decides": decides,
        "artifact": artifact,
    }
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=about)
    return dataclasses.field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one evaluation of a trial found. What was not measured has its default."""

    status: Status = measurement(
        "how the trial ended, or running", decides=True, default=Status.RUNNING
    )
    reason: str = measurement("why it diverged, failed or was stopped", default="")
    step: int = measurement("optimiser steps done", decides=True, curve=True, default=0)
    epoch: float = measurement("passes over the training rows done", curve=True)
    metric: float = measurement("the task's own metric on dev", curve=True, decides=True)
    metric_selection: float = measurement(
        "the metric on the half of dev that chooses; with whole_dev, on all of it",
        curve=True,
        decides=True,
    )
    metric_verification: float = measurement(
        "the metric on the half of dev that is reported; with whole_dev, on all of it",
        curve=True,
        decides=True,
    )
    metric_test: float = measurement(
        "the metric on the test split, where it has labels", decides=True
    )
    rows_reported: int | None = measurement(
        "rows that metric_reported is measured on", default=None
    )
    other_metrics: dict[str, float] = measurement(
        "further metrics and dev sets of the task", curve=True, default=dict
    )
    constant_metric: float = measurement("what a constant answer reaches", curve=True, decides=True)
    loss: float = measurement("on dev", curve=True)
    train_loss: float = measurement("mean since the evaluation before", curve=True)
    remaining: float = measurement(
        "share of the encoder's parameters left", curve=True, decides=True
    )
    density: float = measurement("share of the prunable weights left", curve=True, decides=True)
    density_before_shift: float = measurement(
        "density as the learned λ left it, before the flat end's shift of scores; null without one"
    )
    nonzero_parameters: int | None = measurement(
        "of the model with its head", curve=True, default=None
    )
    parameters: int | None = measurement(
        "of the model with its head, zeros too", curve=True, default=None
    )
    layers_left: int | None = measurement("layers", curve=True, decides=True, default=None)
    dropped_layers: list[int] = measurement("layers dropped, counted from 1", default=list)
    multiplier_now: float = measurement("λ of the step; 0 without a penalty", curve=True)
    gamma: float = measurement("BERMo's γ", curve=True)
    mixing_weights: list[float] = measurement(
        "how much each state counts, embeddings first", curve=True, default=list
    )
    rows_per_second: float = measurement("training speed", "rows/s", curve=True)
    latency: float = measurement("of a forward where it was trained", "s")
    weight_bytes: int | None = measurement("all weights, stored dense", "bytes", default=None)
    hardware: str = measurement("what it ran on", default="")
    precision: str = measurement(
        "what its forwards computed in: fp32, tf32, bf16 or fp16", default=""
    )
    best_step: int | None = measurement(
        "step of the evaluation whose model this is, where the best was asked for", default=None
    )
    resumed_at: int | None = measurement("step of the checkpoint it went on from", default=None)
    alpha: list[float] = measurement("BERMo's α", artifact=True, default=list)
    kept_by_matrix: list[tuple[str, int, int]] = measurement(
        "(name, weights kept, size) of each masked matrix", artifact=True, default=list
    )
    traceback: str = measurement("of a Python error", artifact=True, default="")

    @property
    def metric_reported(self) -> float:
        """What is reported of the trial where it was chosen (:func:`pick_reported_metric`)."""
        reported = pick_reported_metric(vars(self))
        return NAN if reported is None else reported

    def usable(self, *names: str) -> bool:
        """Whether the trial completed and these measurements are finite."""
        return self.status is Status.COMPLETED and self.finite(*names)

    def finite(self, *names: str) -> bool:
        """Whether these were measured and are finite numbers."""
        return all(math.isfinite(getattr(self, name)) for name in names)

    def to_dict(self) -> dict[str, Any]:
        """Plain values without what was not measured, for JSON and for crossing processes."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in values.items() if _measured(value)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Report":
        """The inverse of :meth:`to_dict`; keys that are no field are ignored."""
        known = {n: values[n] for n in (f.name for f in dataclasses.fields(cls)) if n in values}
        if "status" in known:
            known["status"] = Status(known["status"])
        if "kept_by_matrix" in known:
            known["kept_by_matrix"] = [tuple(entry) for entry in known["kept_by_matrix"]]
        return cls(**known)

    def for_search(self) -> "Report":
        """Only what plans decide by or report."""
        return Report(**{name: getattr(self, name) for name in DECIDING})


def _measured(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list) and any(
        isinstance(v, float) and not math.isfinite(v) for v in value
    ):
        return False
    return value is not None and value not in ("", [], {})


def _plain(value: Any) -> Any:
    if isinstance(value, Status):
        return str(value)
    if isinstance(value, dict):
        return {key: number for key, number in value.items() if math.isfinite(number)}
    return (
        [list(v) if isinstance(v, tuple) else v for v in value]
        if isinstance(value, list)
        else value
    )


def pick_reported_metric(measured: Mapping[str, Any]) -> float | None:
    """Of a trial's measurements by name, what is reported of it where it was chosen: the metric on
    rows that did not choose it. That is ``metric_test``, else ``metric_verification``, else
    ``metric``; None where none of them was measured."""
    names = ("metric_test", "metric_verification", "metric")
    return next((measured[name] for name in names if _measured(measured.get(name))), None)


Source = Literal["tag", "trial", "metric", "run"]
_ARROW: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    Status: pa.string(),
    list[int]: pa.list_(pa.int64()),
    list[float]: pa.list_(pa.float64()),
    dict[str, float]: pa.map_(pa.string(), pa.float64()),
}


@dataclass(frozen=True)
class Field:
    """One column of the results table and where MLflow keeps it.

    ``source`` is a tag or a metric of the trial's run called ``key``, a field of the Trial itself
    (``section.field``, read from the tag with its JSON), or the run. Lists and maps that are curves
    are one metric per entry, ``key/ENTRY``.
    """

    name: str
    type: pa.DataType
    meaning: str
    source: Source
    key: str = ""
    unit: str = ""
    curve: bool = False

    @property
    def spread(self) -> bool:
        """Whether it is kept as several metrics, one for each entry."""
        return self.source == "metric" and pa.types.is_nested(self.type)

    def to_mlflow(self, value: Any) -> dict[str, float | str]:
        """The keys and values that MLflow keeps of it."""
        if self.spread:
            entries = value.items() if isinstance(value, dict) else _numbered(value)
            return {f"{self.key}/{entry}": float(number) for entry, number in entries}
        if self.source == "metric":
            return {self.key: float(value)}
        return {self.key: json.dumps(value) if isinstance(value, list) else str(value)}

    def from_mlflow(self, kept: Mapping[str, Any]) -> Any:
        """The inverse of :meth:`to_mlflow`, from all that MLflow keeps of that source."""
        if self.spread:
            prefix = f"{self.key}/"
            entries = sorted(
                (k.removeprefix(prefix), v) for k, v in kept.items() if k.startswith(prefix)
            )
            if pa.types.is_map(self.type):
                return entries
            return [number for _, number in entries] or None
        value = kept.get(self.key)
        if value is None:
            return None
        if pa.types.is_nested(self.type):
            return json.loads(value)
        if pa.types.is_integer(self.type):
            return int(float(value))
        return float(value) if pa.types.is_floating(self.type) else value


def _numbered(values: Sequence[float]) -> list[tuple[str, float]]:
    return [(f"{index:02d}", value) for index, value in enumerate(values)]


def _report_fields() -> tuple[Field, ...]:
    hints = typing.get_type_hints(Report)
    fields = []
    for declared in dataclasses.fields(Report):
        about, kind = declared.metadata, hints[declared.name]
        if about["artifact"]:
            continue
        if isinstance(kind, types.UnionType):
            kind = next(k for k in typing.get_args(kind) if k is not type(None))
        number = kind in (int, float) or about["curve"]
        source: Source = "metric" if number else "tag"
        key = declared.name if number else f"bermo.{declared.name}"
        fields.append(
            Field(
                declared.name, _ARROW[kind], about["meaning"], source, key, about["unit"],
                about["curve"],
            )
        )  # fmt: skip
    return tuple(fields)


def _settings(*rows: tuple[str, pa.DataType, str, str]) -> tuple[Field, ...]:
    return tuple(Field(name, kind, meaning, "trial", key) for name, kind, key, meaning in rows)


_TEXT, _INTEGER, _NUMBER = pa.string(), pa.int64(), pa.float64()
TRIAL_TAG = "bermo.trial_json"
# Who a trial is; then its settings that tables are read by (all others are in `trial_json`).
IDENTITY = (
    Field("study", _TEXT, "name of the study", "tag", "bermo.study"),
    Field("run_id", _TEXT, "MLflow's id of the trial's run", "run"),
    Field("trial_id", _TEXT, "Trial.id: a hash of its content", "tag", "bermo.trial_id"),
    Field("recipe", _TEXT, "Trial.recipe: the same but for its seed", "tag", "bermo.recipe"),
)
_TRAINING = _settings(
    ("task", _TEXT, "data.task", ""),
    ("backbone", _TEXT, "backbone", ""),
    ("fusion", _TEXT, "fusion.name", ""),
    ("method", _TEXT, "pruning.method", "pruning method; 'dense' for none"),
    ("strategy", _TEXT, "layer_drop.strategy", "of layer dropping; null for none"),
    ("mode", _TEXT, "mode", "finetune or features"),
    ("seed", _INTEGER, "seed", ""),
    ("epochs", _INTEGER, "epochs", ""),
    ("batch_size", _INTEGER, "batch_size", "over all workers"),
)
_PRUNING = _settings(
    ("multiplier", _NUMBER, "pruning.multiplier", "λ asked for; null for methods without one"),
    ("target_density", _NUMBER, "pruning.target_density", "density asked for, if any"),
    ("final_density", _NUMBER, "pruning.final_density", "kept fraction; null with a penalty"),
    ("learning_rate", _NUMBER, "optimizer.learning_rate", "of the weights"),
    ("score_learning_rate", _NUMBER, "optimizer.score_learning_rate", "of the mask scores"),
    ("fusion_learning_rate", _NUMBER, "optimizer.fusion_learning_rate", "of α and γ of BERMo"),
)
WORKERS = Field("workers", _INTEGER, "", "tag", "bermo.workers")
SETTINGS = (*_TRAINING, WORKERS, *_PRUNING)
MEASUREMENTS = _report_fields()
RUN = (
    Field("metric_name", _TEXT, "which metric the task has", "tag", "bermo.metric_name"),
    Field("layers_dropped", _INTEGER, "how many layers", "run"),
    Field(
        "metric_reported",
        _NUMBER,
        "what is reported of a trial that was chosen: metric_test, else metric_verification, else "
        "metric",
        "run",
    ),
    Field("started", pa.timestamp("ms", tz="UTC"), "", "run"),
    Field("seconds", _NUMBER, "wall time from first start to end", "run", unit="s"),
    Field("checkpoint", _TEXT, "where the newest one lies", "tag", "bermo.checkpoint"),
    Field("commit", _TEXT, "of the code, where it is a checkout; null elsewhere", "tag", "commit"),
    Field("trial_json", _TEXT, "the Trial, complete", "tag", TRIAL_TAG),
)
FIELDS: tuple[Field, ...] = (*IDENTITY, *SETTINGS, *MEASUREMENTS, *RUN)
DECIDING = tuple(f.name for f in dataclasses.fields(Report) if f.metadata["decides"])

SCHEMA = pa.schema(
    [
        pa.field(
            f.name,
            f.type,
            metadata={
                "meaning": f.meaning,
                "unit": f.unit,
                "source": f"{f.source} {f.key}".strip(),
            },
        )
        for f in FIELDS
    ]
)


def to_mlflow(report: Report, curves: bool = True) -> tuple[dict[str, float], dict[str, str]]:
    """A report as MLflow keeps it: metrics, and tags. Without ``curves``, only those metrics that
    are measured once."""
    measured = report.to_dict()
    metrics: dict[str, float] = {}
    tags: dict[str, str] = {}
    for field in MEASUREMENTS:
        if field.name in measured and (curves or not field.curve):
            into: dict[str, Any] = metrics if field.source == "metric" else tags
            into.update(field.to_mlflow(measured[field.name]))
    return metrics, tags


def row_from_mlflow(
    run_id: str,
    started: int,
    ended: int | None,
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
) -> dict[str, Any]:
    """A row of :data:`SCHEMA` from what MLflow keeps of a trial's run (times in ms)."""
    kept = {"tag": tags, "metric": metrics, "trial": _read_settings(tags.get(TRIAL_TAG, "{}"))}
    row = {f.name: f.from_mlflow(kept[f.source]) for f in FIELDS if f.source != "run"}
    row |= {"run_id": run_id, "started": started}
    row["seconds"] = (ended - started) / 1000 if ended else None
    row["method"] = row["method"] or "dense"
    row["dropped_layers"] = row["dropped_layers"] or []
    row["layers_dropped"] = len(row["dropped_layers"])
    row["metric_reported"] = pick_reported_metric(row)
    return row


def _read_settings(trial_json: str) -> dict[str, Any]:
    """Of a Trial's JSON, what :data:`SETTINGS` name. It is not parsed as a Trial, which takes long
    and needs the plug-ins that it was made with."""
    trial = json.loads(trial_json)
    values = {}
    for field in (*_TRAINING, *_PRUNING):
        section, _, name = field.key.rpartition(".")
        values[field.key] = ((trial.get(section) or {}) if section else trial).get(name)
    return values


class Listener(Protocol):
    """Hears of a study's trials as they run, in the driver's process.

    ``attempt`` names one run of a trial within the study: the same Trial may be run twice.
    """

    def on_open(self, most_trials: int, concurrent: int, where: str) -> None:
        """The study starts: how many trials it has at most, how many at once, and where."""

    def on_start(self, attempt: str, trial: Trial) -> None:
        """A trial starts, or goes on after a resume."""

    def on_known(self, attempt: str, trial: Trial, report: Report) -> None:
        """A trial of a resumed study that had ended before, so will not be heard of again."""

    def on_report(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        """A trial reported: the newest report last, before it those that may have been missed;
        ``checkpoint`` is where its checkpoint lies, empty without one."""

    def on_progress(self, attempt: str, share: float) -> None:
        """A running trial has done that share of its steps; told now and then, between reports."""

    def on_refresh(self) -> None:
        """Some time has passed."""

    def on_close(self) -> None:
        """No trial runs any more; what has not ended was interrupted."""


Draw = Callable[[Report], Mapping[str, Any]]  # a trial's last report -> figures by file name
