"""Layers that tasks can spare (layer dropping, Tables 2 to 4): pure functions of the results."""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bermo_ray.models.layer_drop import most
from bermo_ray.results.significance import mcnemar, right
from bermo_ray.search.bracket import within
from bermo_ray.tasks import registry
from bermo_ray.tasks.task import halves

Row = dict[str, Any]
Predictions = Callable[[str], pa.Table]  # a run's id -> its answers on the dev set
SIGNIFICANT = 0.05

_LOSSES: tuple[tuple[str, pa.DataType, str], ...] = (
    ("task", pa.string(), ""),
    ("backbone", pa.string(), ""),
    ("strategy", pa.string(), "'none' for the whole model"),
    ("count", pa.int64(), "layers dropped"),
    ("dropped", pa.string(), "which, as a JSON list; of the first seed"),
    ("seeds", pa.int64(), "trainings behind the means"),
    ("metric", pa.float64(), "mean over seeds"),
    ("loss", pa.float64(), "points below the whole model, mean over seeds"),
    ("parameters", pa.int64(), "of the whole model"),
    ("saved", pa.float64(), "share of the whole model's parameters that is gone"),
    ("train_speedup", pa.float64(), "rows a second against the whole model's; see by_depth"),
    ("infer_speedup", pa.float64(), "a forward's seconds against the whole model's; see by_depth"),
)
_COUNTS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("task", pa.string(), ""),
    ("backbone", pa.string(), ""),
    ("strategy", pa.string(), ""),
    ("threshold", pa.float64(), "points that may be lost"),
    ("count", pa.int64(), "the most layers whose loss on the first dev half is within it"),
    ("dropped", pa.string(), "which, as a JSON list"),
    ("layers", pa.int64(), "layers left"),
    ("metric", pa.float64(), "the whole model's on the second dev half"),
    ("loss_first", pa.float64(), "points lost on the half that the count was found on"),
    ("loss_second", pa.float64(), "points lost on the other half"),
    ("p_value", pa.float64(), "McNemar, second half, first seed; null: nothing dropped, or scores"),
    ("significant", pa.bool_(), f"p < {SIGNIFICANT}"),
    ("saved", pa.float64(), "share of the whole model's parameters that is gone"),
    ("trainings", pa.int64(), "trainings of this task and encoder, for all thresholds together"),
    ("grid", pa.int64(), "trainings that trying every count would have taken"),
    ("monotone", pa.bool_(), "whether more layers dropped never lost less, where it was tried"),
)  # fmt: skip


def _schema(columns: Iterable[tuple[str, pa.DataType, str]]) -> pa.Schema:
    return pa.schema([pa.field(n, t, metadata={"meaning": m}) for n, t, m in columns])


LOSSES, COUNTS = _schema(_LOSSES), _schema(_COUNTS)


def _groups(table: pa.Table) -> dict[tuple[str, str], dict[tuple[str, int], list[Row]]]:
    """(task, backbone) -> (strategy, layers dropped from the whole model) -> rows with a metric, by
    seed. The whole model is ("none", 0): what drops nothing itself, wherever it started from.

    Diverged trials count: what they reached is what dropping that much gives.
    """
    found: dict[tuple[str, str], dict[tuple[str, int], list[Row]]] = {}
    rows = [
        r for r in table.to_pylist()
        if r["status"] in ("completed", "diverged")
        and r["metric"] is not None and r["parameters"] is not None
    ]  # fmt: skip
    rows.sort(key=lambda r: r["seed"])
    wholes = {(r["task"], r["backbone"]): r["count"] for r in rows if r["strategy"] is None}
    for row in rows:
        name = (row["task"], row["backbone"])
        count = row["count"] - wholes.get(name, 0)
        key = ("none", 0) if row["strategy"] is None else (row["strategy"], count)
        found.setdefault(name, {}).setdefault(key, []).append(row)
    return found


def by_depth(rows: Iterable[Row], measured: str, *keys: str) -> dict[tuple[Any, ...], float]:
    """(``keys``, layers left) -> median of what was measured. Which layers went, and masks, change
    nothing about a dense step, so trials of one depth are as many measurements of it, and a busy
    moment hits few of them."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row[measured] is not None and row["layers"] is not None:
            key = (*(row[key] for key in keys), row["layers"])
            found.setdefault(key, []).append(row[measured])
    return {key: statistics.median(values) for key, values in found.items()}


def _mean(rows: Sequence[Row], key: str) -> float | None:
    values = [r[key] for r in rows if r[key] is not None]
    return statistics.fmean(values) if values else None


def layer_losses(table: pa.Table) -> pa.Table:
    """What each strategy and count costs and saves against the whole model (Tables 2 and 3).

    A task and encoder whose whole model has no result has no row.
    """
    rows: list[Row] = []
    every = table.to_pylist()
    latencies = by_depth(every, "latency", "backbone")
    speeds = by_depth(every, "rows_per_second", "task", "backbone")
    for (task, backbone), group in _groups(table).items():
        if ("none", 0) not in group:
            continue
        whole = group["none", 0]
        level, size = _mean(whole, "metric"), whole[0]["parameters"]
        assert level is not None
        for (strategy, count), own in group.items():
            metric = _mean(own, "metric")
            depths = (own[0]["layers"], whole[0]["layers"])
            speed, speed_whole = (speeds.get((task, backbone, n)) for n in depths)
            latency, latency_whole = (latencies.get((backbone, n)) for n in depths)
            assert metric is not None
            rows.append({
                "task": task, "backbone": backbone, "strategy": strategy, "count": count,
                "dropped": own[0]["dropped"], "seeds": len(own),
                "metric": metric, "loss": 100 * (level - metric),
                "parameters": own[0]["parameters"], "saved": 1 - own[0]["parameters"] / size,
                "train_speedup": speed / speed_whole if speed and speed_whole else None,
                "infer_speedup": latency_whole / latency if latency and latency_whole else None,
            })  # fmt: skip
    rows.sort(key=lambda r: (r["backbone"], r["task"], r["strategy"] != "none", r["strategy"], r["count"]))  # fmt: skip # noqa: E501
    return pa.Table.from_pylist(rows, schema=LOSSES)


def layer_counts(
    table: pa.Table, thresholds: Sequence[float], predictions: Predictions | None = None
) -> pa.Table:
    """The most layers that each task can spare at each threshold (Table 4).

    Found on the first half of the dev set, verified on the second; with ``predictions`` the
    difference on the second half is tested by McNemar. Means are over seeds; a count that lacks a
    seed is none. A task whose whole model did not complete with every seed has no row.
    """
    rows: list[Row] = []
    seeds: dict[tuple[str, str], set[int]] = {}
    for row in table.to_pylist():
        seeds.setdefault((row["task"], row["backbone"]), set()).add(row["seed"])
    for (task, backbone), group in sorted(_groups(table).items()):
        wanted = len(seeds[task, backbone])
        whole = group.get(("none", 0), [])
        if sum(row["status"] == "completed" for row in whole) < wanted:
            continue  # no better than a constant answer: nothing to lose
        first, second = (_mean(whole, half) for half in ("first_half", "second_half"))
        if first is None or second is None:
            continue
        for strategy in sorted({s for s, _ in group if s != "none"} or {"none"}):
            tried = {k: r for (s, k), r in group.items() if s == strategy and k}
            own = {0: whole} | {k: r for k, r in tried.items() if len(r) == wanted}
            losses = {
                k: 100 * (first - m)
                for k, r in sorted(own.items())
                if (m := _mean(r, "first_half")) is not None
            }
            trainings = sum(len(r) for r in (whole, *tried.values()))
            ordered = list(losses.values())
            for threshold in thresholds:
                count = max(k for k, loss in losses.items() if within(loss, threshold))
                best = own[count]
                kept = _mean(best, "second_half")
                assert kept is not None
                p = _p_value(task, whole[0], best[0], predictions) if count else None
                grid = 1 + most(strategy, whole[0]["layers"])
                rows.append({
                    "task": task, "backbone": backbone, "strategy": strategy,
                    "threshold": threshold, "count": count,
                    "dropped": best[0]["dropped"], "layers": best[0]["layers"],
                    "metric": second, "loss_first": losses[count],
                    "loss_second": 100 * (second - kept),
                    "p_value": p, "significant": None if p is None else p < SIGNIFICANT,
                    "saved": 1 - best[0]["parameters"] / whole[0]["parameters"],
                    "trainings": trainings, "grid": grid * len(whole),
                    "monotone": all(a <= b for a, b in pairwise(ordered)),
                })  # fmt: skip
    return pa.Table.from_pylist(rows, schema=COUNTS)


def _p_value(task: str, whole: Row, short: Row, predictions: Predictions | None) -> float | None:
    if predictions is None:
        return None
    found = []
    for row in (whole, short):
        answers = predictions(row["run_id"])
        places = halves(answers.num_rows)[1]
        found.append(right(answers, registry.get(task), places))
    if found[0] is None or found[1] is None:
        return None
    return mcnemar(found[0], found[1]).p_value


def speed_only(losses: pa.Table) -> list[str]:
    """Encoders whose layers share their weights: dropping makes them faster, not smaller."""
    saved: dict[str, list[float]] = {}
    for row in losses.to_pylist():
        if json.loads(row["dropped"]):
            saved.setdefault(row["backbone"], []).append(row["saved"])
    return [name for name, shares in saved.items() if np.allclose(shares, 0.0, atol=1e-3)]
