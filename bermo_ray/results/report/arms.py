"""What a study compares, found in its trials: arms, and the trials that share a panel."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.results.frontier import is_dense
from bermo_ray.results.varying import flatten_settings

ARM = "arm"
PANEL = ("task", "backbone")
# A trial's settings that an arm's name has, or that make a panel.
_NOT_COMPARED = (
    "seed", "data.task", "data.data_dir", "backbone", "fusion.name", "pruning.method",
    "layer_drop.strategy", "distillation.teacher",
)  # fmt: skip
_LONGEST_SETTING = 24  # characters of a setting's value in a label


def with_arms(table: pa.Table, name_dense: bool = False) -> pa.Table:
    """The trials with a column ``arm``: the fusion and, where the study has several, the pruning
    method, the strategy of layer dropping, and whether there is a teacher. Plain BERT comes first
    and dense models come before others, so that arms look alike in all figures.

    Args:
        table: Trials.
        name_dense: Whether no pruning counts as a method, so that dense models are arms too.
    """
    table = table.take(pc.sort_indices(_order(table), [("order", "ascending")]))
    distilled = [bool(trial.get("distillation")) for trial in _trials(table)]
    parts: list[list[str]] = [table["fusion"].to_pylist()]
    for column, unnamed in (("method", "dense"), ("strategy", None)):
        values = table[column].to_pylist()
        counted = {value for value in values if name_dense or value != unnamed}
        if len(counted) > 1:
            parts.append([(value or "").replace("_", " ") for value in values])
    if len(set(distilled)) > 1:
        parts.append(["with a teacher" if value else "" for value in distilled])
    labels = [", ".join(filter(None, words)) for words in zip(*parts, strict=True)]
    return table.append_column(ARM, pa.array(labels, pa.string()))


def _order(table: pa.Table) -> pa.Table:
    """A column by which plain BERT comes first, then dense models; else trials stay as they are."""
    keys = zip(table["fusion"].to_pylist(), table["method"].to_pylist(), strict=True)
    ranks = [2 * (fusion != "last") + (method != "dense") for fusion, method in keys]
    numbers = [rank * table.num_rows + number for number, rank in enumerate(ranks)]
    return pa.table({"order": pa.array(numbers, pa.int64())})


def spread_baselines(table: pa.Table) -> pa.Table:
    """The trials by arm, with the dense ones of its fusion in every arm that has smaller ones: they
    are the right end of each of these frontiers.

    Args:
        table: From :func:`with_arms`; of one task and encoder.
    """
    dense = table.filter(is_dense(table))
    others = table.filter(pc.invert(is_dense(table)))
    parts = []
    for name in pc.unique(others[ARM]).to_pylist():
        rows = others.filter(pc.equal(others[ARM], name))
        shared = dense.filter(pc.is_in(dense["fusion"], pc.unique(rows["fusion"])))
        index = shared.schema.get_field_index(ARM)
        labels = pa.array([name] * shared.num_rows, pa.string())
        parts.append(pa.concat_tables([rows, shared.set_column(index, ARM, labels)]))
    return pa.concat_tables(parts) if parts else dense


def label_recipes(table: pa.Table) -> list[str]:
    """Of each trial its arm, dense models being arms too, and the other settings that differ among
    the trials, but for seed, task and encoder: ``bermo, l0, learning_rate 0.001``. Settings of a
    section that not all trials have, such as pruning, are compared among those that have it.

    Args:
        table: From :func:`with_arms`, with dense models named.
    """
    trials = [flatten_settings(trial) for trial in _trials(table)]
    names = list(dict.fromkeys(name for trial in trials for name in trial))
    varied = [
        name
        for name in names
        if name not in _NOT_COMPARED
        and len({trial[name] for trial in trials if trial.get(name) is not None}) > 1
    ]
    labels = []
    for trial, arm in zip(trials, table[ARM].to_pylist(), strict=True):
        settings = [(name, trial[name]) for name in varied if trial.get(name) not in (None, "")]
        labels.append(", ".join([arm, *(_describe_setting(name, v) for name, v in settings)]))
    return labels


def _describe_setting(name: str, value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else Path(str(value)).name
    return f"{name.rpartition('.')[2]} {text[:_LONGEST_SETTING]}"


def split_panels(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The trials of each task and encoder, with a title; only what differs is named."""
    keys = list(zip(*(table[name].to_pylist() for name in PANEL), strict=True))
    varied = [len({key[i] for key in keys}) > 1 for i in range(len(PANEL))]
    for key in dict.fromkeys(keys):
        chosen = np.array([other == key for other in keys])
        words = [Path(word).name if i else word for i, word in enumerate(key) if varied[i]]
        yield ", ".join(words), table.filter(pa.array(chosen))


def _trials(table: pa.Table) -> list[dict[str, Any]]:
    return [json.loads(text or "{}") for text in table["trial_json"].to_pylist()]


def metric_label(table: pa.Table) -> str:
    """The name of the trials' metric, where they have one in common."""
    names: Sequence[str] = pc.drop_null(pc.unique(table["metric_name"])).to_pylist()
    return names[0] if len(names) == 1 else "metric"
