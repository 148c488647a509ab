"""Layers that tasks can spare (layer dropping, Tables 2 to 4): pure functions of the results."""

import contextlib
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.models.layer_strategies import most_droppable
from bermo_ray.record import Status
from bermo_ray.results.pairing import common_cells
from bermo_ray.results.schemas import COUNTS, LOSSES, SIGNIFICANCE_LEVEL
from bermo_ray.results.significance import Predictions, compare_predictions, verification_rows
from bermo_ray.results.verdicts import Estimate, compare_by_seed
from bermo_ray.search.layer_count_search import is_within, loss_interval

Row = dict[str, Any]
UNDROPPED = ("none", 0)  # strategy and layers dropped of the model that keeps all layers
FINE_TUNED = ", fine-tuned before"  # behind a strategy that a fine-tuned model's layers went by
_MEASURED = tuple(status.value for status in Status if status.measured)
_LEAST_VERIFICATION_ROWS = 2
Group = dict[tuple[str, int], list[Row]]  # (strategy, layers dropped) -> rows by seed


def with_dropping(table: pa.Table) -> pa.Table:
    """The table with a column ``dropping``: the strategy by which layers went, with its threshold
    where that said how many, and whether the model had been fine-tuned before, as ``strategy`` of
    :data:`LOSSES` has it. Where the undropped model starts from a fine-tuned one too, that is said
    of none."""
    rows = table.select(["task", "backbone", "strategy", "trial_json"]).to_pylist()
    trials = [json.loads(row["trial_json"] or "{}") for row in rows]
    pretrained = {
        (row["task"], row["backbone"])
        for row, trial in zip(rows, trials, strict=True)
        if row["strategy"] is None and not trial.get("warm_start")
    }
    names = []
    for row, trial in zip(rows, trials, strict=True):
        name = row["strategy"] or UNDROPPED[0]
        threshold = (trial.get("layer_drop") or {}).get("threshold")
        name += "" if threshold is None else f" > {threshold:g}"
        before = trial.get("warm_start") and (row["task"], row["backbone"]) in pretrained
        names.append(f"{name}{FINE_TUNED}" if before and row["strategy"] else name)
    return table.append_column("dropping", pa.array(names, pa.string()))


def compare_at_half(table: pa.Table, first: Sequence[str], second: Sequence[str]) -> Estimate:
    """By how many points the second ways of dropping half of the layers are better than the first,
    as :func:`bermo_ray.results.verdicts.compare_by_seed` has it: each way, task and encoder counts
    alike, and those tasks and encoders count that have both sides.

    Args:
        table: Trials of any number of tasks, encoders and strategies.
        first: Values of ``dropping`` (:func:`with_dropping`); ``none``: the undropped model.
        second: The same of the side that is compared.

    Raises:
        UserError: there is nothing to compare.
    """
    rows = with_dropping(table)
    gone, left = (rows[name].to_pylist() for name in ("layers_dropped", "layers_left"))
    sides: list[str | None] = []
    for dropping, lost, kept in zip(rows["dropping"].to_pylist(), gone, left, strict=True):
        is_asked = dropping == "none" or (lost and kept and abs(lost - kept) <= 1)
        side = "second" if dropping in second else "first" if dropping in first else None
        sides.append(side if is_asked else None)
    rows = rows.append_column("side", pa.array(sides, pa.string()))
    rows = common_cells(rows, "side", "first", "second", ("task", "backbone"))
    if rows.num_rows == 0:
        names = " beside ".join(" or ".join(side) or "others" for side in (second, first))
        raise UserError(f"no task has a trial without half of its layers of {names}")
    over = ("task", "backbone", "dropping")
    return compare_by_seed(rows, "side", "first", "second", over=over)


def _group_rows(table: pa.Table) -> dict[tuple[str, str], Group]:
    """(task, backbone) -> its rows with a metric, by strategy and layers dropped.

    A trial that drops nothing itself is the undropped model, wherever it started from: layers that
    its warm start lacked are not counted. Diverged trials count: what they reached is what dropping
    that much gives. The same recipe and seed run twice counts once, with its first row.
    """
    rows = [
        row
        for row in with_dropping(table).to_pylist()
        if row["status"] in _MEASURED
        and row["metric_reported"] is not None
        and row["parameters"] is not None
    ]
    rows.sort(key=lambda row: row["seed"])
    lacking = {
        (row["task"], row["backbone"]): row["layers_dropped"]
        for row in rows
        if row["strategy"] is None
    }
    groups: dict[tuple[str, str], Group] = {}
    seen = set()
    for row in rows:
        name = (row["task"], row["backbone"])
        if (*name, row["recipe"], row["seed"]) in seen:
            continue
        seen.add((*name, row["recipe"], row["seed"]))
        dropped = row["layers_dropped"] - lacking.get(name, 0)
        key = UNDROPPED if row["strategy"] is None else (row["dropping"], dropped)
        groups.setdefault(name, {}).setdefault(key, []).append(row)
    return groups


def median_by_depth(rows: Iterable[Row], figure: str, *keys: str) -> dict[tuple[Any, ...], float]:
    """(``keys``, layers left) -> median of a measured figure.

    Which layers were dropped, and masks, change nothing about a dense step, so trials of one depth
    are as many measurements of it, and a busy moment hits few of them.
    """
    measured: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row[figure] is not None and row["layers_left"] is not None:
            key = (*(row[key] for key in keys), row["layers_left"])
            measured.setdefault(key, []).append(row[figure])
    return {key: statistics.median(values) for key, values in measured.items()}


def _mean(rows: Sequence[Row], column: str) -> float | None:
    values = [row[column] for row in rows if row[column] is not None]
    return statistics.fmean(values) if values else None


def _mean_reported(rows: Sequence[Row]) -> float:
    return statistics.fmean(row["metric_reported"] for row in rows)


def _saved(rows: Sequence[Row], undropped: Sequence[Row]) -> float:
    return 1 - rows[0]["parameters"] / undropped[0]["parameters"]


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator and denominator else None


def layer_losses(
    table: pa.Table,
    predictions: Predictions | None = None,
    times: Mapping[tuple[str, int], float] | None = None,
) -> pa.Table:
    """What each strategy and count costs and saves against the undropped model (Tables 2 and 3).

    Nothing is chosen here: every strategy and count has its row, with its ``metric_reported``. A
    task and encoder whose undropped model has no result has no row.

    Args:
        table: Trials of any number of tasks, encoders and strategies.
        predictions: From a run's id to its predictions; with it, each is tested by McNemar against
            the undropped model of the same seed.
        times: Seconds of inference by encoder and layers left; the trials' latency, if not given.
    """
    all_rows = table.to_pylist()
    seconds = dict(times or median_by_depth(all_rows, "latency", "backbone"))
    speeds = median_by_depth(all_rows, "rows_per_second", "task", "backbone")
    losses: list[Row] = []
    for (task, backbone), group in _group_rows(table).items():
        undropped = group.get(UNDROPPED)
        if undropped is None:
            continue
        level, depth = _mean_reported(undropped), undropped[0]["layers_left"]
        for (strategy, dropped), rows in group.items():
            metric, left = _mean_reported(rows), rows[0]["layers_left"]
            low, high = _reported_interval(undropped, rows) or (None, None)
            time_left = _ratio(seconds.get((backbone, left)), seconds.get((backbone, depth)))
            losses.append({
                "task": task, "backbone": backbone, "strategy": strategy,
                "layers_dropped": dropped, "dropped_layers": rows[0]["dropped_layers"],
                "layers_left": left, "seeds": len(rows),
                "metric_reported": metric, "loss": 100 * (level - metric),
                "loss_low": low, "loss_high": high,
                "parameters": rows[0]["parameters"], "saved": _saved(rows, undropped),
                "train_speedup": _ratio(
                    speeds.get((task, backbone, left)), speeds.get((task, backbone, depth))
                ),
                "time_saved": None if time_left is None else 1 - time_left,
            } | _test_first_common_seed(undropped, rows, predictions))  # fmt: skip
    losses.sort(key=_by_encoder_and_strategy)
    return pa.Table.from_pylist(losses, schema=LOSSES)


def _reported_interval(undropped: Sequence[Row], rows: Sequence[Row]) -> tuple[float, float] | None:
    if rows is undropped:
        return None
    return loss_interval(
        *({row["seed"]: row["metric_reported"] for row in side} for side in (undropped, rows))
    )


def _test_first_common_seed(
    undropped: Sequence[Row], rows: Sequence[Row], predictions: Predictions | None
) -> Row:
    """McNemar's test of two trainings with the same seed, as columns of LOSSES."""
    by_seed = {row["seed"]: row for row in undropped}
    pair = next(((by_seed[row["seed"]], row) for row in rows if row["seed"] in by_seed), None)
    if pair is None or predictions is None or rows is undropped:
        return {}
    p_value = None
    with contextlib.suppress(UserError):  # they are not of the same examples
        p_value = compare_predictions(*(predictions(row["run_id"]) for row in pair))
    if p_value is None:
        return {}
    significant = p_value < SIGNIFICANCE_LEVEL
    return {"p_value": p_value, "p_seed": pair[0]["seed"], "significant": significant}


def _by_encoder_and_strategy(row: Row) -> tuple[Any, ...]:
    strategy = row["strategy"]
    return row["backbone"], row["task"], strategy != "none", strategy, row["layers_dropped"]


def layer_counts(
    table: pa.Table, thresholds: Sequence[float], predictions: Predictions | None = None
) -> pa.Table:
    """The most layers that each task can spare at each threshold (Table 4).

    Found on the selection half of the dev set, verified on the other. Means are over seeds; a count
    that lacks a seed is left out. A task whose undropped model did not complete with every seed has
    no row.

    Args:
        table: Trials of any number of tasks, encoders and strategies.
        thresholds: Points of the metric that may be lost.
        predictions: From a run's id to its predictions; with it, the difference on the
            verification half is tested by McNemar.

    Raises:
        UserError: The verification half has fewer than two rows.
    """
    seeds: dict[tuple[str, str], set[int]] = {}
    for row in table.to_pylist():
        seeds.setdefault((row["task"], row["backbone"]), set()).add(row["seed"])
    rows: list[Row] = []
    for name, group in sorted(_group_rows(table).items()):
        for strategy in sorted({s for s, _ in group if s != "none"} or {"none"}):
            tried = _tried_counts(group, strategy, len(seeds[name]))
            if tried is None:
                continue
            named = {"task": name[0], "backbone": name[1], "strategy": strategy}
            rows += [named | tried.row_at(threshold, predictions) for threshold in thresholds]
    return pa.Table.from_pylist(rows, schema=COUNTS)


@dataclass(frozen=True)
class _TriedCounts:
    """What one strategy lost on one task and encoder, by the number of layers dropped."""

    strategy: str
    rows: Mapping[int, list[Row]]  # 0: the undropped model
    losses: Mapping[int, float]  # points, on the selection half; counts rising
    metric_verification: float  # of the undropped model
    trainings: int

    def row_at(self, threshold: float, predictions: Predictions | None) -> Row:
        """The largest count within the threshold, as a row of COUNTS."""
        count = max(k for k, loss in self.losses.items() if is_within(loss, threshold))
        undropped, chosen = self.rows[0], self.rows[count]
        verified = _mean(chosen, "metric_verification")
        assert verified is not None
        p_value = None
        if count and predictions is not None:
            p_value = _verification_p_value(undropped[0], chosen[0], predictions)
        low, high = self._interval(count) or (None, None)
        grid = 1 + most_droppable(self.strategy, undropped[0]["layers_left"])
        return {
            "threshold": threshold, "layers_dropped": count,
            "dropped_layers": chosen[0]["dropped_layers"], "layers_left": chosen[0]["layers_left"],
            "metric": self.metric_verification, "loss_selection": self.losses[count],
            "loss_verification": 100 * (self.metric_verification - verified),
            "loss_low": low, "loss_high": high, "certain": self._is_certain(count, threshold),
            "p_value": p_value,
            "significant": None if p_value is None else p_value < SIGNIFICANCE_LEVEL,
            "saved": _saved(chosen, undropped),
            "trainings": self.trainings, "grid": grid * len(undropped),
            "monotone": all(a <= b for a, b in pairwise(self.losses.values())),
        }  # fmt: skip

    def _interval(self, count: int) -> tuple[float, float] | None:
        """95 % interval of the points lost on the verification half; None of one seed."""
        undropped, dropped = (
            {
                row["seed"]: row["metric_verification"]
                for row in self.rows[k]
                if row["metric_verification"] is not None
            }
            for k in (0, count)
        )
        return loss_interval(undropped, dropped)

    def _is_certain(self, count: int, threshold: float) -> bool | None:
        """Whether noise of the seeds leaves the answer: its loss is within the threshold, that of
        the next larger count beyond it. None of one seed."""
        interval = self._interval(count)
        if interval is None:
            return None
        if not is_within(interval[1], threshold):
            return False
        if count == most_droppable(self.strategy, self.rows[0][0]["layers_left"]):
            return True
        larger = min((k for k in self.losses if k > count), default=None)
        beyond = None if larger is None else self._interval(larger)
        return beyond is not None and not is_within(beyond[0], threshold)


def _tried_counts(group: Group, strategy: str, seeds: int) -> _TriedCounts | None:
    """None where the undropped model is no better than a constant answer with some seed, or has no
    metric of the halves: there is nothing to lose then."""
    undropped = group.get(UNDROPPED, [])
    if sum(row["status"] == Status.COMPLETED for row in undropped) < seeds:
        return None
    selection, verification = (
        _mean(undropped, half) for half in ("metric_selection", "metric_verification")
    )
    if selection is None or verification is None:
        return None
    dropped = {k: rows for (s, k), rows in group.items() if s == strategy and k}
    rows = {0: undropped} | {k: rows for k, rows in dropped.items() if len(rows) == seeds}
    losses = {
        k: 100 * (selection - metric)
        for k, of_count in sorted(rows.items())
        if (metric := _mean(of_count, "metric_selection")) is not None
    }
    trainings = sum(map(len, (undropped, *dropped.values())))
    return _TriedCounts(strategy, rows, losses, verification, trainings)


def _verification_p_value(first: Row, second: Row, predictions: Predictions) -> float | None:
    tables = [predictions(row["run_id"]) for row in (first, second)]
    if tables[0] is None:
        return None
    if (rows := len(verification_rows(tables[0]))) < _LEAST_VERIFICATION_ROWS:
        raise UserError(
            f"data.dev_rows: {tables[0].num_rows} dev rows leave {rows} to verify "
            f"{first['task']} on, expected >= {_LEAST_VERIFICATION_ROWS}"
        )
    return compare_predictions(*tables)


def encoders_with_shared_layers(losses: pa.Table) -> list[str]:
    """Encoders whose layers share their weights: dropping makes them faster, not smaller."""
    saved: dict[str, list[float]] = {}
    for row in losses.to_pylist():
        if row["dropped_layers"]:
            saved.setdefault(row["backbone"], []).append(row["saved"])
    return [name for name, shares in saved.items() if np.allclose(shares, 0.0, atol=1e-3)]
