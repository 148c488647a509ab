"""What the frontier studies share: options, the plan that they ask for, and its report."""

import contextlib
from dataclasses import dataclass
from typing import Annotated, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray.command_line.options import OneTaskOptions, by_backbone, default
from bermo_ray.command_line.shell import Session
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.results import efficiency, figures, frontier, hypervolume, load_all, text
from bermo_ray.results.comparison import Efficiency
from bermo_ray.results.frontier import GROUP
from bermo_ray.results.schemas import make_schema
from bermo_ray.search.arm_search import EarlierTrials
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.plan import Plan
from bermo_ray.search.recommended import Range, recommend
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.target import Target
from bermo_ray.search.target_search import TargetSearch
from bermo_ray.study import read_creation_time
from bermo_ray.tasks.registry import get_task
from bermo_ray.trial import Pruning, Trial

_DEFAULT_MATCH_TARGET = "0.99x"  # of the matched arm's own dense baseline
ANSWERS = make_schema(
    ("fusion", pa.string(), ""),
    ("target_metric", pa.float64(), "metric asked for"),
    ("dense_metric", pa.float64(), "the baseline's, mean over seeds"),
    ("met", pa.bool_(), "whether a recipe met it on average, over all seeds"),
    ("recipe", pa.string(), "that one, the sparsest; else the one that came closest"),
    ("trial_id", pa.string(), "with the first seed"),
    ("earlier", pa.bool_(), "whether that one is an earlier study's"),
    ("multiplier", pa.float64(), "λ"),
    ("learning_rate", pa.float64(), ""),
    ("score_learning_rate", pa.float64(), ""),
    ("remaining", pa.float64(), "mean over seeds"),
    ("metric", pa.float64(), "mean over seeds"),
    ("seeds", pa.int64(), "how many it has"),
    ("seeds_met", pa.int64(), "how many met the target"),
    ("sureness", pa.float64(), "chance that its mean meets it, by t, without the first seed"),
)


@dataclass(frozen=True)
class FrontierOptions(OneTaskOptions):
    """Options of a search over λ and rates."""

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""
    trials: int = 8
    """Trials searched for each fusion."""
    multipliers: Annotated[Range | None, by_backbone] = None
    """Range of λ, the multiplier of the penalty (log scale)."""
    learning_rates: Annotated[Range | None, by_backbone] = None
    """Range of the weights' learning rate (log scale)."""
    score_learning_rates: Annotated[Range | None, by_backbone] = None
    """Range of the learning rate of mask scores and fusion scalars (log scale)."""
    target: Annotated[str | None, default("the complete frontier")] = None
    """Search for the fewest weights that keep a metric: 0.885, or 0.99x of the dense baseline."""
    match: Annotated[str | None, default("each its own")] = None
    """The other fusions aim at what this one's answer reached (its own target: 0.99x, if none)."""
    fresh: bool = False
    """Learn nothing from earlier studies in the store."""


F = TypeVar("F", bound=FrontierOptions)


def plan_frontier(options: FrontierOptions, pruning: Pruning) -> Plan:
    """Dense baselines, then λ and rates of each fusion: the frontier, or a target on it."""
    space = make_space(options, pruning)
    base = next(iter(space.arms.values()))
    earlier = [] if options.fresh else read_earlier(options, base.data.data_dir)
    if options.target is None and options.match is None:
        return FrontierSearch(space, options.trials, options.seeds, earlier)
    target = Target.parse(options.target or _DEFAULT_MATCH_TARGET)
    metric = get_task(options.task).metric
    if not target.relative and target.value > 1:
        raise UserError(f"target: got {target.value:g}, but {metric} is at most 1")
    return TargetSearch(space, target, options.trials, options.seeds, options.match, earlier)


def make_space(options: FrontierOptions, pruning: Pruning) -> Space:
    """An arm for each fusion; λ and both rates are searched."""
    recommended = recommend(pruning.method, options.backbone)
    ranges = {
        name: _make_range(name, getattr(options, name) or getattr(recommended, name))
        for name in ("multipliers", "learning_rates", "score_learning_rates")
    }
    base = options.base_trial(pruning.method).replace(
        pruning=pruning, optimizer__learning_rate=ranges["learning_rates"].quantile(0.5)
    )
    return Space(
        arms={fusion: base.replace(fusion__name=fusion) for fusion in options.fusions},
        ranges={
            "pruning__multiplier": ranges["multipliers"],
            "optimizer__learning_rate": ranges["learning_rates"],
            "optimizer__score_learning_rate": ranges["score_learning_rates"],
        },
        sparsity_key="pruning__multiplier",
    )


def _make_range(option: str, ends: Range) -> LogUniform:
    try:
        return LogUniform(*ends)
    except UserError as error:
        raise UserError(*(p.replace("range", option, 1) for p in error.problems)) from None


def read_earlier(options: FrontierOptions, data_dir: str | None) -> EarlierTrials:
    """Completed trials of other studies in the store, of the same task and data.

    A resumed study goes on with what it knew at its start: of trials that ended later it learns
    nothing, as it did not then.
    """
    created = read_creation_time(options.store, options.name) if options.name else None
    table = load_all(options.store.uri)
    wanted = pc.and_(
        pc.equal(table["task"], options.task), pc.equal(table["status"], str(Status.COMPLETED))
    )
    earlier = []
    for row in table.filter(wanted).to_pylist():
        ended = row["started"].timestamp() + (row["seconds"] or 0.0)
        if row["study"] == options.name or (created is not None and ended > created):
            continue
        with contextlib.suppress(UserError):  # what it names is of a plug-in that is not loaded
            trial = Trial.from_json(row["trial_json"])
            if trial.data.data_dir == data_dir:  # it is not part of a trial's id
                figures = {name: row[name] for name in ("metric", "remaining")}
                earlier.append((trial, Report(status=Status.COMPLETED, **figures)))
    return earlier


def report_frontier(session: Session[F], table: pa.Table) -> pa.Table:
    """Prints, draws and keeps what came out; gives the frontier."""
    plan, metric = session.study.plan, get_task(session.options.task).metric
    front = frontier(table)
    session.print(text.frontier_table(front, metric))
    tables = {"trials": table, "frontier": front}
    if isinstance(plan, FrontierSearch):  # a search for one point says nothing of the rest
        session.print(text.describe_hypervolumes(hypervolume(table, by=(*GROUP, "seed"))))
    if isinstance(plan, TargetSearch):
        tables["answers"] = pa.Table.from_pylist(plan.answers(), schema=ANSWERS)
        session.print(*text.describe_answers(tables["answers"], metric))
        session.print(*_compare_with_match(session.options.match, table, tables["answers"]))
    figure = figures.frontier_figure(table, metric, session.study.folder / "frontier.png")
    session.publish(tables, [figure])
    if isinstance(plan, TargetSearch) and plan.refusals:
        raise UserError(*plan.refusals)
    return front


def _compare_with_match(match: str | None, table: pa.Table, answers: pa.Table) -> list[str]:
    """How many times fewer weights the others need than the fusion that is matched."""
    if match is None:
        return []
    pruned = table.filter(pc.not_equal(table["method"], "dense"))
    lines = []
    for row in answers.to_pylist():
        fusion, level = row["fusion"], row["target_metric"]
        if fusion == match:
            continue
        first, second = (pruned.filter(pc.equal(pruned["fusion"], f)) for f in (match, fusion))
        try:
            lines.append(_describe_efficiency(efficiency(first, second, level), match, fusion))
        except UserError as error:  # the search confirmed one with other seeds than the other
            lines += [f"at {level:.4f}: no comparison; {problem}" for problem in error.problems]
    return lines


def _describe_efficiency(result: Efficiency, match: str, fusion: str) -> str:
    """One line: how many times fewer weights one fusion needs, with the interval."""
    unreached = {match: result.unreached_first, fusion: result.unreached_second}
    if any(unreached.values()):
        counts = (f"{n} of {result.seeds} seeds of {arm}" for arm, n in unreached.items() if n)
        return f"at {result.level:.4f}: not reached in {' and '.join(counts)}"
    interval = f"95 % over {result.seeds} seeds: {result.low:.2f} to {result.high:.2f}"
    if result.seeds == 1:
        interval = "one seed, so no interval"
    needs = f"{fusion} needs 1/{result.ratio:.2f} of {match}'s weights"
    return f"at {result.level:.4f} {needs} ({interval})"
