"""What varies in a study: the settings by which its trials differ, and short names for them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

# Settings that a reader knows by a shorter name than the field's.
SHORT_NAMES = {
    "data.task": "task",
    "fusion.name": "fusion",
    "pruning.method": "method",
    "pruning.multiplier": "λ",
    "pruning.target_density": "target",
    "pruning.final_density": "kept",
    "layer_drop.strategy": "strategy",
    "layer_drop.count": "dropped",
    "optimizer.learning_rate": "rate",
    "optimizer.score_learning_rate": "score rate",
    "distillation.teacher": "teacher",
}
# Fields that say of which kind a section is, so that to have none is a value too.
_KINDS = ("pruning.method", "layer_drop.strategy", "distillation.teacher", "data.shots")
_IGNORED = ("data.data_dir",)  # where rows lie changes no number


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings as ``section.field``, lists as JSON text; what is None, as a section that is not
    there, is left out.

    >>> flatten_settings({"seed": 0, "data": {"user": {"text": ["review"]}}, "layer_drop": None})
    {'seed': 0, 'data.user.text': '["review"]'}
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        elif value is not None:
            flat[prefix + name] = json.dumps(value) if isinstance(value, list) else value
    return flat


def varying_settings(table: pa.Table) -> dict[str, list[Any]]:
    """Of each setting in which trials differ, its value in every trial; None where a trial has no
    such section. That some have a section is told by the field that names its kind: a dense trial's
    lack of a λ is no difference in λ.

    Args:
        table: Trials, with ``trial_json``.
    """
    return find_varying([json.loads(text) for text in table["trial_json"].to_pylist()])


def find_varying(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """:func:`varying_settings` of trials as plain values."""
    trials = [flatten_settings(trial) for trial in settings]
    fields = dict.fromkeys(name for trial in trials for name in trial if name not in _IGNORED)
    varying = {}
    for name in fields:
        values = [trial.get(name) for trial in trials]
        present = {value for value in values if value is not None}
        if len(present) > 1 or (name in _KINDS and None in values and present):
            varying[name] = values
    return varying


def summarize_trials(table: pa.Table) -> pa.Table:
    """What a person asks of each trial: its id, what varies, what came out, how it ended."""
    varying = varying_settings(table)
    names = short_names(list(varying))
    columns = {"trial_id": table["trial_id"]}
    columns |= {names[field]: pa.array(_alike(values)) for field, values in varying.items()}
    measured = ("remaining", "metric", "metric_reported", "seconds", "status", "reason")
    return pa.table(columns | {name: table[name] for name in measured})


def _alike(values: Sequence[Any]) -> list[Any]:
    """Values that one Arrow column can hold: text where they are of several types."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds == {int, float}:
        return list(values)
    return [None if value is None else str(value) for value in values]


def short_names(fields: Sequence[str]) -> dict[str, str]:
    """A name for each field that fits a column: a usual short one, else its last part, else all of
    it where two would be alike.

    >>> short_names(["data.task", "fusion.norm", "seed"])
    {'data.task': 'task', 'fusion.norm': 'norm', 'seed': 'seed'}
    """
    names = {field: SHORT_NAMES.get(field, field.rpartition(".")[2]) for field in fields}
    taken = list(names.values())
    return {field: name if taken.count(name) == 1 else field for field, name in names.items()}
