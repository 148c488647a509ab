"""The section of a report on how trials trained: the metric and the size over the epochs."""

import pyarrow as pa

from bermo_ray.results.means import completed
from bermo_ray.results.report.arms import ARM, label_recipes, metric_label, split_panels, with_arms
from bermo_ray.results.report.blocks import Drawing, Section
from bermo_ray.results.report.drawings import MOST_PANELS, TrainingCurve, training_figure
from bermo_ray.results.report.record import StudyRecord

_MOST_RECIPES = 6  # lines in a panel; of more, only the best of each arm is drawn
_LEAST_CHANGE = 1e-9  # of the remaining weights, for their curve to be drawn
_TITLE = "Training"


def training_section(record: StudyRecord) -> Section:
    """The metric and, where weights were pruned on the way, what remained, over the epochs."""
    table = completed(record.table)
    if table.num_rows == 0:
        return Section(_TITLE, [])
    labelled, which = _choose_trials(table)
    panels = list(split_panels(labelled))
    note = f" The first {MOST_PANELS} of {len(panels)}." if len(panels) > MOST_PANELS else ""
    drawings = []
    for key, name, axis, scale in (
        ("metric", "training", f"{metric_label(table)} on dev", 1.0),
        ("remaining", "remaining", "remaining encoder parameters, %", 100.0),
    ):
        curves = {
            title: by_arm
            for title, rows in panels
            if (by_arm := _collect_curves(record, rows, key))
        }
        if not curves or (key == "remaining" and not _changes(curves)):
            continue
        caption = (
            f"{axis[0].upper()}{axis[1:]}, over the epochs: {which}. Lines are means, bands go "
            f"from the lowest trial to the highest.{note}"
        )
        drawings.append(Drawing(name, caption, training_figure(curves, axis, scale)))
    return Section(_TITLE, drawings)


def _choose_trials(table: pa.Table) -> tuple[pa.Table, str]:
    """The trials that are drawn, labelled as arms, and which they are, in words."""
    table = with_arms(table, name_dense=True)
    labels = label_recipes(table)
    if len(set(labels)) <= _MOST_RECIPES:
        index = table.schema.get_field_index(ARM)
        labelled = table.set_column(index, ARM, pa.array(labels, pa.string()))
        return labelled, "the seeds of all that was trained"
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(zip(*(table[c] for c in ("task", "backbone", ARM)), strict=True)):
        groups.setdefault(tuple(map(str, key)), []).append(number)
    rows = table.select(["recipe", "seed", "metric_selection"]).to_pylist()
    best = [_choose_best([(n, rows[n]) for n in numbers]) for numbers in groups.values()]
    chosen = table.take(pa.array(sorted(n for numbers in best for n in numbers), pa.int64()))
    return chosen, "of each arm the best on the rows that choose, a trial for each seed"


def _choose_best(rows: list[tuple[int, dict[str, object]]]) -> list[int]:
    """Of an arm's trials, given as (number, row), the numbers of those of the best recipe among
    those with most seeds; where every trial has a recipe of its own, as in a search, the best of
    each seed."""
    recipes: dict[object, list[tuple[int, dict[str, object]]]] = {}
    for number, row in rows:
        recipes.setdefault(row["recipe"], []).append((number, row))
    most = max(map(len, recipes.values()))
    if most > 1:
        several = [members for members in recipes.values() if len(members) == most]
        return [number for number, _ in max(several, key=_mean_metric)]
    by_seed: dict[object, list[tuple[int, dict[str, object]]]] = {}
    for number, row in rows:
        by_seed.setdefault(row["seed"], []).append((number, row))
    return [max(members, key=lambda m: _mean_metric([m]))[0] for members in by_seed.values()]


def _mean_metric(rows: list[tuple[int, dict[str, object]]]) -> float:
    metrics = [row["metric_selection"] for _, row in rows]
    known = [metric for metric in metrics if isinstance(metric, float)]
    return sum(known) / len(known) if known else float("-inf")


def _collect_curves(
    record: StudyRecord, rows: pa.Table, key: str
) -> dict[str, list[TrainingCurve]]:
    """The curves of a panel by arm; of trials with one evaluation there is nothing to draw."""
    by_arm: dict[str, list[TrainingCurve]] = {}
    for arm, run_id in zip(rows[ARM].to_pylist(), rows["run_id"].to_pylist(), strict=True):
        curves = record.curves.get(run_id, {})
        epochs, values = curves.get("epoch", {}), curves.get(key, {})
        steps = sorted(epochs.keys() & values.keys())
        if len(steps) > 1:
            curve = TrainingCurve([epochs[s] for s in steps], [values[s] for s in steps])
            by_arm.setdefault(arm, []).append(curve)
    return by_arm


def _changes(panels: dict[str, dict[str, list[TrainingCurve]]]) -> bool:
    curves = [c for by_arm in panels.values() for several in by_arm.values() for c in several]
    return any(max(curve.values) - min(curve.values) > _LEAST_CHANGE for curve in curves)
