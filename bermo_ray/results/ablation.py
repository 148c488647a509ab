"""Single changes against one default, with intervals that allow for how many there are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from rich.table import Table

from bermo_ray.errors import UserError
from bermo_ray.intervals import CONFIDENCE
from bermo_ray.results.means import select, values_by_seed
from bermo_ray.results.schemas import FLAG, INTEGER, NUMBER, TEXT, make_schema
from bermo_ray.results.verdicts import Claim, Estimate, Verdict, compare_by_seed, judge

DEFAULT, CHANGE, REFERENCE = "default", "change", "reference"  # values of ``kind``
CHANGES = make_schema(
    ("change", TEXT, "what is other than in the default, as 'choice: value'"),
    ("kind", TEXT, "default, change, or reference: what stands beside and is not counted"),
    ("seeds", INTEGER, "those that completed in every task: what the metric is a mean of"),
    ("diverged", INTEGER, "trials that diverged"),
    ("metric", NUMBER, "mean over seeds and tasks; null where no seed completed"),
    ("difference", NUMBER, "from the default's, over common seeds; null where there is none"),
    ("low", NUMBER, "lower end of the difference's interval; null where there is none"),
    ("high", NUMBER, "upper end of that"),
    ("confidence", NUMBER, "of the interval: 1 − 0.05 / k, of k changes (Bonferroni)"),
    ("settled", FLAG, "of a change: whether the interval leaves out 0"),
)


def corrected_confidence(comparisons: int) -> float:
    """Of each of so many intervals, so that all of them hold with 95 % (Bonferroni).

    >>> round(corrected_confidence(1), 3), round(corrected_confidence(10), 3)
    (0.95, 0.995)
    """
    return 1 - (1 - CONFIDENCE) / max(1, comparisons)


def compare_changes(table: pa.Table, default: str, references: Sequence[str] = ()) -> pa.Table:
    """Each change's metric and its difference from the default's, a row each, the default's first,
    with the schema :data:`CHANGES`.

    Args:
        table: Trials, with a column ``change``.
        default: What that column has where nothing is changed.
        references: What it has where a trial stands beside; not counted among the changes.
    """
    kinds = dict.fromkeys([default, *table["change"].to_pylist()], CHANGE)
    kinds |= {name: REFERENCE for name in references if name in kinds} | {default: DEFAULT}
    confidence = corrected_confidence(list(kinds.values()).count(CHANGE))
    rows = []
    for name, kind in kinds.items():
        trials = select(table, change=name)
        values = list(values_by_seed(trials).values())
        row: dict[str, Any] = {
            "change": name,
            "kind": kind,
            "seeds": len(values),
            "diverged": trials["status"].to_pylist().count("diverged"),
            "metric": sum(values) / len(values) if values else None,
            "confidence": confidence,
            "settled": False,
        }
        if kind != DEFAULT:
            row |= _compare(table, default, name, confidence)
            row["settled"] = kind == CHANGE and _leaves_out_zero(row)
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=CHANGES)


def _compare(table: pa.Table, default: str, name: str, confidence: float) -> dict[str, Any]:
    try:
        number = _estimate(table, default, name, confidence)
    except UserError:  # no seed in common: all of one diverged, which ``diverged`` says
        return {}
    return {"difference": number.value, "low": number.low, "high": number.high}


def _estimate(table: pa.Table, default: str, name: str, confidence: float) -> Estimate:
    return compare_by_seed(table, "change", default, name, scale=1.0, confidence=confidence)


def _leaves_out_zero(row: dict[str, Any]) -> bool:
    return row.get("low") is not None and not row["low"] <= 0 <= row["high"]


def judge_changes(table: pa.Table, changes: pa.Table, claim: Claim, where: str) -> list[Verdict]:
    """A verdict on each change that differs from the default or, where none does, on the one that
    comes nearest to it, by its difference in units of its interval. Each is judged by its size,
    with the corrected interval.

    Args:
        table: The trials.
        changes: Of :func:`compare_changes`.
        claim: That a change matters; which one and which way is put in the verdict's words.
        where: On what they are compared.
    """
    rows = [row for row in changes.to_pylist() if row["kind"] == CHANGE]
    (default,) = select(changes, kind=DEFAULT)["change"].to_pylist()
    known = [row for row in rows if row["difference"] is not None]
    chosen = [row for row in known if row["settled"]] or sorted(known, key=_clearness)[-1:]
    if not chosen:
        words = f"none of {len(rows)} single changes completed with a seed that the default did too"
        return [judge(claim, where, _refuse, words)]
    verdicts = []
    for row in chosen:
        side = "better" if row["difference"] >= 0 else "worse"
        which = row["change"] if row["settled"] else f"the clearest, {row['change']},"
        words = f"of {len(rows)} single changes {which} is {side} than the default by"
        worded, settings = replace(claim, quantity=words), (row["change"], row["confidence"])
        verdicts.append(judge(worded, where, _estimate_size, table, default, *settings))
    return verdicts


def _refuse(reason: str) -> Estimate:
    raise UserError(reason)


def _clearness(row: dict[str, Any]) -> tuple[float, float]:
    size = abs(row["difference"])
    width = None if row["low"] is None else row["high"] - row["low"]
    return (size / width if width else 0.0), size


def _estimate_size(table: pa.Table, default: str, name: str, confidence: float) -> Estimate:
    """The difference in points, turned so that it is positive."""
    sign = -100.0 if _estimate(table, default, name, confidence).value < 0 else 100.0
    number = compare_by_seed(table, "change", default, name, scale=sign, confidence=confidence)
    if number.low is None or number.high is None:
        return number
    return replace(number, low=min(number.low, number.high), high=max(number.low, number.high))


def changes_table(title: str, changes: pa.Table, scale: float = 100.0) -> Table:
    """The changes as a rich table of 80 columns.

    Args:
        title: Says what the numbers are.
        changes: Of :func:`compare_changes`.
        scale: What they are multiplied by: 100 for points.
    """
    rows = changes.to_pylist()
    confidence = f"{100 * rows[0]['confidence']:.3g} % interval"
    view = Table(title=title, box=None, title_justify="left", title_style="bold", padding=(0, 1))
    view.add_column("choice")
    view.add_column("value")
    for name in ("metric", "difference", confidence, ""):
        view.add_column(name, justify="right")
    for row in rows:
        choice, _, value = row["change"].partition(": ")
        lost = f" ({row['diverged']} div.)" if row["diverged"] else ""
        metric = "none" if row["metric"] is None else f"{scale * row['metric']:.2f}"
        apart = "" if row["difference"] is None else f"{scale * row['difference']:+.2f}"
        ends = [row["low"], row["high"]]
        interval = "" if None in ends else " to ".join(f"{scale * end:.2f}" for end in ends)
        mark = "settled" if row["settled"] else ""
        view.add_row(choice, value, metric + lost, apart, interval, mark)
    return view


def drawn_changes(changes: pa.Table) -> pa.Table:
    """What :func:`bermo_ray.results.arm_figures.dots_figure` draws of them: the differences, as one
    arm called ``of``."""
    rows = [
        {
            "change": row["change"],
            "of": "difference",
            "mean": 0.0 if row["kind"] == DEFAULT else row["difference"],
            "interval": None if row["low"] is None else (row["high"] - row["low"]) / 2,
        }
        for row in changes.to_pylist()
    ]
    return pa.Table.from_pylist(rows)
