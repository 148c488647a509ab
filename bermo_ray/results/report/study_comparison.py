"""Two studies side by side: settings, frontiers, weights at the same metric, metrics, verdicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.errors import UserError
from bermo_ray.intervals import mean_half_width
from bermo_ray.results.arm_text import format_interval
from bermo_ray.results.comparison import SHARES, compare_arms
from bermo_ray.results.figures import draw_frontier
from bermo_ray.results.frontier import hypervolume, usable
from bermo_ray.results.means import completed, select
from bermo_ray.results.report.arms import ARM, metric_label, spread_baselines, with_arms
from bermo_ray.results.report.blocks import Block, DataTable, Drawing, Page, Paragraphs, Section
from bermo_ray.results.report.record import StudyRecord
from bermo_ray.results.report.sections import HOW_TO_READ, has_frontier
from bermo_ray.results.report.trial_text import count_statuses, link_points
from bermo_ray.results.verdicts import compare_means

# Settings that change no number: names, and where records lie.
_PLACES = ("name", "runs", "storage", "tracking_uri", "concurrent", "resume", "fresh", "dry_run")
_SIDE = "side"  # column: which study a trial is of
_NOTHING = "none"


def compare_studies(first: StudyRecord, second: StudyRecord, ui_url: str) -> Page:
    """Sets two studies side by side.

    Args:
        first: The one that is compared with.
        second: The one that is compared: above 1, ratios say that it needs fewer weights.
        ui_url: Where the MLflow UI serves that links to runs lead to.

    Raises:
        UserError: the same study twice.
    """
    if first.name == second.name:
        raise UserError(f"second: got {first.name!r}, the same study as the first; give another")
    sections = [
        settings_section(first, second),
        frontiers_section(first, second, ui_url),
        weights_section(first, second),
        hypervolumes_section(first, second),
        metrics_section(first, second),
        verdicts_section(first, second),
    ]
    counts = "; ".join(f"{r.name}: {count_statuses(r.table)}" for r in (first, second))
    title = f"{first.name} and {second.name}"
    return Page(title, counts, [section for section in sections if section.blocks])


def settings_section(first: StudyRecord, second: StudyRecord) -> Section:
    """The settings in which the studies differ, and the code where that is another."""
    sides = [_describe_study(record) for record in (first, second)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    rows = [
        (name.replace("_", " "), *(side.get(name, _NOTHING) for side in sides))
        for name in names
        if sides[0].get(name) != sides[1].get(name)
    ]
    if not rows:
        same = "Both studies were started with the same settings and the same code."
        return Section("What differs", [Paragraphs([same])])
    return Section("What differs", [DataTable(("setting", first.name, second.name), rows)])


def _describe_study(record: StudyRecord) -> dict[str, str]:
    settings = {k: v for k, v in record.settings.items() if k not in _PLACES}
    described = {"script": record.kind} | settings
    if commit := record.tags.get("commit"):
        described["commit"] = commit
    return {k: v for k, v in described.items() if v not in ("None", "()", "[]")}


@dataclass(frozen=True)
class _Pair:
    """What two studies have in common: a task, an encoder and a fusion, with one method each."""

    task: str
    backbone: str
    fusion: str
    methods: tuple[str, str]
    has_one_encoder: bool = True

    @property
    def label(self) -> tuple[str, str]:
        """The task, with the encoder where there are several, and the models."""
        methods = " / ".join(dict.fromkeys(m.replace("_", " ") for m in self.methods))
        encoder = "" if self.has_one_encoder else f" on {Path(self.backbone).name}"
        return f"{self.task}{encoder}", f"{self.fusion}, {methods}"

    def rows(self, table: pa.Table, side: int, with_dense: bool = False) -> pa.Table:
        """One study's trials of it; its dense baselines too, if asked."""
        rows = select(table, task=self.task, backbone=self.backbone, fusion=self.fusion)
        methods = {self.methods[side], *(["dense"] if with_dense else [])}
        return rows.filter(pc.is_in(rows["method"], pa.array(sorted(methods))))


def _find_pairs(first: pa.Table, second: pa.Table) -> Iterator[_Pair]:
    """Models of the same method or, of a fusion for which each study has one other, of these."""
    ones, others = _methods_by_model(first), _methods_by_model(second)
    has_one_encoder = len({backbone for _, backbone, _ in ones}) == 1
    for key in (key for key in ones if key in others):
        only_first = [method for method in ones[key] if method not in others[key]]
        only_second = [method for method in others[key] if method not in ones[key]]
        pairs = [(method, method) for method in ones[key] if method in others[key]]
        if len(only_first) == len(only_second) == 1:
            pairs.append((only_first[0], only_second[0]))
        for methods in pairs:
            yield _Pair(*key, methods, has_one_encoder)


def _methods_by_model(table: pa.Table) -> dict[tuple[str, str, str], list[str]]:
    """Pruning methods in order of their first trial, by task, encoder and fusion."""
    methods: dict[tuple[str, str, str], list[str]] = {}
    columns = (table[name].to_pylist() for name in ("task", "backbone", "fusion", "method"))
    for task, backbone, fusion, method in zip(*columns, strict=True):
        known = methods.setdefault((task, backbone, fusion), [])
        if method not in known:
            known.append(method)
    return methods


def _find_pruned_pairs(first: pa.Table, second: pa.Table) -> list[_Pair]:
    return [pair for pair in _find_pairs(first, second) if "dense" not in pair.methods]


def frontiers_section(first: StudyRecord, second: StudyRecord, ui_url: str) -> Section:
    """Both studies' frontiers in one figure, for each task and encoder that they share."""
    tables = [with_arms(record.table) for record in (first, second)]
    panels = [set(_panels(table)) for table in tables]
    drawings: list[Drawing] = []
    for task, backbone in (key for key in _panels(tables[0]) if key in panels[1]):
        sides = [select(table, task=task, backbone=backbone) for table in tables]
        if not has_frontier(pa.concat_tables(sides)):
            continue
        named = [
            _rename_arms(spread_baselines(rows), record.name)
            for rows, record in zip(sides, (first, second), strict=True)
        ]
        rows = pa.concat_tables(named)
        trials = usable(pa.concat_tables(sides)).to_pylist()
        addresses, points = link_points(trials, ui_url)
        drawings.append(
            Drawing(
                f"frontiers-{len(drawings) + 1}",
                f"{task} on {Path(backbone).name}: the frontiers of both studies.",
                draw_frontier(rows, metric_label(rows), ARM, addresses),
                points=points,
            )
        )
    return Section("Frontiers", [Paragraphs([HOW_TO_READ]), *drawings] if drawings else [])


def _panels(table: pa.Table) -> list[tuple[str, str]]:
    pairs = zip(table["task"].to_pylist(), table["backbone"].to_pylist(), strict=True)
    return list(dict.fromkeys(pairs))


def _rename_arms(table: pa.Table, study: str) -> pa.Table:
    names = pa.array([f"{study}: {arm}" for arm in table[ARM].to_pylist()], pa.string())
    return table.set_column(table.schema.get_field_index(ARM), ARM, names)


def weights_section(first: StudyRecord, second: StudyRecord) -> Section:
    """How many times fewer weights the second study needs at the same metric, with intervals, over
    the seeds that both have; with fewer than two of them, why there is no number."""
    rows: list[tuple[str, ...]] = []
    reasons: list[str] = []
    for pair in _find_pruned_pairs(first.table, second.table):
        sides = [
            _name_side(pair.rows(record.table, side, with_dense=True), record.name)
            for side, record in enumerate((first, second))
        ]
        sides = _with_common_seeds(sides)
        studies = (first.name, second.name)
        try:
            ratios = compare_arms(pa.concat_tables(sides), SHARES, _SIDE, studies)
        except UserError as error:
            reasons.append(f"{', '.join(pair.label)}: no comparison: {error.problems[0]}")
            continue
        for number, ratio in enumerate(ratios.to_pylist()):
            rows.append((*(pair.label if number == 0 else ("", "")), *_ratio_cells(ratio)))
    heads = ("task", "models", "share", "level", "times fewer (95 %)", "seeds", "short of it")
    title = (
        f"How many times fewer weights {second.name} needs than {first.name} for a share of the "
        "better dense baseline's metric; how many seeds of each fall short of that level"
    )
    is_number = (False, False, True, True, True, True, True)
    blocks: list[Block] = [DataTable(heads, rows, is_number, title)] if rows else []
    return Section("Weights at the same metric", blocks + _paragraphs(reasons))


def _with_common_seeds(sides: list[pa.Table]) -> list[pa.Table]:
    """Both studies' trials of the seeds that both have run."""
    common = set(sides[0]["seed"].to_pylist()) & set(sides[1]["seed"].to_pylist())
    seeds = pa.array(sorted(common), pa.int64())
    return [rows.filter(pc.is_in(rows["seed"], seeds)) for rows in sides]


def _name_side(rows: pa.Table, study: str) -> pa.Table:
    return rows.append_column(_SIDE, pa.array([study] * rows.num_rows, pa.string()))


def _ratio_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = _NOTHING
    if row["ratio"] is not None:
        ratio = f"{row['ratio']:.2f} ({row['low']:.3g} to {row['high']:.3g})"
    short = f"{row['unreached_first']} / {row['unreached_second']}"
    return f"{row['share']:g}", f"{row['level']:.4f}", ratio, str(row["seeds"]), short


def hypervolumes_section(first: StudyRecord, second: StudyRecord) -> Section:
    """Each frontier in one number, mean over seeds."""
    rows = []
    for pair in _find_pruned_pairs(first.table, second.table):
        cells = [
            _mean_hypervolume(pair.rows(record.table, side, with_dense=True))
            for side, record in enumerate((first, second))
        ]
        rows.append((*pair.label, *cells))
    heads = ("task", "models", first.name, second.name)
    title = "1: as good as dense down to 1 % of the weights; mean over seeds ± 95 %"
    table = DataTable(heads, rows, (False, False, True, True), title)
    return Section("Hypervolume", [table] if rows else [])


def _mean_hypervolume(rows: pa.Table) -> str:
    areas = hypervolume(rows, by=("task", "backbone", "fusion", "method", "seed"))
    areas = areas.filter(pc.not_equal(areas["method"], "dense"))
    values = areas["hypervolume"].to_pylist()
    if not values or None in values:
        return "unknown without a dense baseline" if values else _NOTHING
    half_width = float(mean_half_width(np.array(values)))
    interval = "" if np.isnan(half_width) else f" ± {half_width:.3f}"
    return f"{np.mean(values):.3f}{interval}"


def metrics_section(first: StudyRecord, second: StudyRecord) -> Section:
    """The reported metric of each seed's best trial, and the difference over common seeds."""
    rows = []
    for pair in _find_pairs(first.table, second.table):
        one, other = (
            _best_by_seed(pair.rows(record.table, side))
            for side, record in enumerate((first, second))
        )
        if common := one.keys() & other.keys():
            one, other = ({s: v for s, v in side.items() if s in common} for side in (one, other))
        means = (_mean_cell(one), _mean_cell(other))
        rows.append((*pair.label, *means, _difference(one, other), str(len(common))))
    heads = ("task", "models", first.name, second.name, "difference (95 %)", "seeds")
    title = (
        "Reported metric, %: mean over the seeds in common, of each the trial that is best on the "
        "rows that choose"
    )
    if not rows:
        apart = "The studies have no task, encoder and fusion in common, so no number to compare."
        return Section("Metric", [Paragraphs([apart])])
    return Section(
        "Metric", [DataTable(heads, rows, (False, False, True, True, True, True), title)]
    )


def _best_by_seed(rows: pa.Table) -> dict[int, float]:
    rows = completed(completed(rows), "metric_selection")
    best: dict[int, dict[str, Any]] = {}
    for row in rows.to_pylist():
        seed = row["seed"]
        if seed not in best or row["metric_selection"] > best[seed]["metric_selection"]:
            best[seed] = row
    return {seed: row["metric_reported"] for seed, row in best.items()}


def _mean_cell(by_seed: Mapping[int, float]) -> str:
    if not by_seed:
        return "none completed"
    return f"{100 * float(np.mean(list(by_seed.values()))):.2f}"


def _difference(first: Mapping[int, float], second: Mapping[int, float]) -> str:
    if not first.keys() & second.keys():
        return "no seed in common"
    number = compare_means(first, second, scale=100.0)
    if number.low is None or number.high is None:
        return f"{number.value:+.2f} (one seed)"
    return f"{number.value:+.2f} ({number.low:.2f} to {number.high:.2f})"


def verdicts_section(first: StudyRecord, second: StudyRecord) -> Section:
    """What each study concluded of the same claims."""
    sides = [{(v.claim, v.source): v for v in record.verdicts} for record in (first, second)]
    rows = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        cells = []
        for side in sides:
            verdict = side.get(key)
            number = "" if verdict is None else format_interval(verdict)[1]
            cells.append(_NOTHING if verdict is None else f"{verdict.outcome}: {number}")
        rows.append((f"{key[0]} ({key[1]})", *cells))
    table = DataTable(("claim", first.name, second.name), rows)
    return Section("Verdicts", [table] if rows else [])


def _paragraphs(lines: list[str]) -> list[Block]:
    return [Paragraphs(lines)] if lines else []
