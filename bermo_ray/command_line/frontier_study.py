"""What the frontier studies share: options, the plan that they ask for, and its report."""

from dataclasses import dataclass
from typing import Annotated, TypeVar

import pyarrow as pa

from bermo_ray.command_line.options import OneTaskOptions, Subject, by_backbone, default
from bermo_ray.command_line.session import Session
from bermo_ray.errors import UserError
from bermo_ray.results import (
    compare_areas,
    compare_arms,
    figures,
    frontier,
    hypervolume,
    metric_at_sizes,
    remaining_at_levels,
    text,
)
from bermo_ray.results.choice import describe_rows
from bermo_ray.results.comparison import SHARES
from bermo_ray.results.earlier import read_known_trials
from bermo_ray.results.frontier import GROUP
from bermo_ray.results.schemas import make_schema
from bermo_ray.results.verdicts import Claim, Estimate, Verdict, judge
from bermo_ray.search.arm_search import EarlierTrials
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.plan import Plan
from bermo_ray.search.recommended import Range, recommend
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.target import Target
from bermo_ray.search.target_search import TargetSearch
from bermo_ray.study import read_creation_time
from bermo_ray.tasks.registry import select_task
from bermo_ray.trial import Data

SIZES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # remaining weights at which arms are shown
PUBLISHED_EFFICIENCY = {"l0": 1.40, "soft_movement": 1.29}  # QQP, by method: BERMo §4.2.3
_TRIALS, _TARGET_TRIALS = 5, 16  # of a search that looks for all of a frontier, or for one point
ANSWERS = make_schema(
    ("fusion", pa.string(), ""),
    ("target_metric", pa.float64(), "metric asked for, on the rows that are reported"),
    ("dense_metric", pa.float64(), "the dense baseline's there, mean over seeds"),
    ("recipe", pa.string(), "the one that the search chose; null: no pruned trial completed"),
    ("trial_id", pa.string(), "with the first seed"),
    ("multiplier", pa.float64(), "λ"),
    ("learning_rate", pa.float64(), ""),
    ("score_learning_rate", pa.float64(), ""),
    ("remaining", pa.float64(), "mean over the reported seeds"),
    ("metric", pa.float64(), "mean over the reported seeds, on rows that did not choose"),
    ("metric_interval", pa.float64(), "half of its 95 % interval, by t; null of one seed"),
    ("met", pa.bool_(), "whether that mean meets the target"),
    ("seeds", pa.int64(), "how many report"),
    ("seeds_failed", pa.int64(), "how many of them have no result"),
    ("seeds_met", pa.int64(), "how many met the target"),
    ("sureness", pa.float64(), "chance that the recipe's mean over seeds meets it"),
)


@dataclass(frozen=True)
class FrontierOptions(OneTaskOptions):
    """Options of a search over λ and rates."""

    DEFAULT = Subject(seeds=(0, 1, 2))
    PAPER = Subject(("qqp", "mnli", "squad"), ("bert-base-uncased",), (0, 1, 2))

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""
    trials: Annotated[int | None, default(f"{_TRIALS}; {_TARGET_TRIALS} with --target")] = None
    """Pruned trials of each fusion, in each search."""
    dense_trials: Annotated[int | None, default("a third of --trials, at least 2")] = None
    """Learning rates tried without pruning, for the dense baseline of each fusion."""
    multipliers: Annotated[Range | None, by_backbone] = None
    """Range of λ, the multiplier of the penalty (log scale)."""
    learning_rates: Annotated[Range | None, by_backbone] = None
    """Range of the weights' learning rate (log scale)."""
    score_learning_rates: Annotated[Range | None, by_backbone] = None
    """Range of the learning rate of mask scores (log scale)."""
    levels: Annotated[tuple[float, ...] | None, default("0.95 0.97 0.99, of several seeds")] = None
    """Compare the fusions where they keep these shares of the better dense baseline."""
    target: Annotated[str | None, default("the complete frontier")] = None
    """Search for the fewest weights that keep a metric: 0.885, or 0.99x of the dense baseline."""
    search_seed: int = 1000
    """With --target: the seed that searches, none of those that report."""


F = TypeVar("F", bound=FrontierOptions)


def plan_frontier(options: FrontierOptions, method: str) -> Plan:
    """Dense trials, then λ and rates of each fusion: the frontier, or a target on it. Each seed is
    a search of its own; with a target, seeds report what was chosen.

    Raises:
        UserError: a target that can't be reached, or options that do not go together.
    """
    space = make_space(options, method)
    if options.target is None:
        _check_levels(options)
        return FrontierSearch(space, options.trials or _TRIALS, options.seeds, options.dense_trials)
    if options.levels is not None:
        raise UserError("levels: they compare complete frontiers; `target` asks for one point")
    target = Target.parse(options.target)
    base = next(iter(space.arms.values()))
    metric = select_task(base.data).metric
    if not target.relative and target.value > 1:
        raise UserError(f"target: got {target.value:g}, but {metric} is at most 1")
    return TargetSearch(
        space,
        target,
        options.trials or _TARGET_TRIALS,
        options.seeds,
        options.search_seed,
        [] if options.fresh else read_earlier(options, base.data),
        options.dense_trials,
    )


def _check_levels(options: FrontierOptions) -> None:
    if options.levels is None:
        return
    if len(options.seeds) < 2:
        raise UserError("seeds: one seed gives no interval to compare by; give two or more")
    if len(options.fusions) < 2:
        raise UserError(f"levels: got one fusion, {options.fusions[0]}; comparing takes two")
    if bad := [share for share in options.levels if not 0 < share <= 1]:
        raise UserError(f"levels: got {bad[0]:g}, expected shares of the baseline, 0 < share <= 1")


def make_space(options: FrontierOptions, method: str) -> Space:
    """An arm for each fusion; λ and both rates are searched."""
    recommended = recommend(method, options.backbone)
    ranges = {
        name: _make_range(name, _given_range(options, name) or getattr(recommended, name))
        for name in ("multipliers", "learning_rates", "score_learning_rates")
    }
    rate = ranges["learning_rates"].quantile(0.5)
    arms = [
        options.base_trial(method, fusion).replace(optimizer={"learning_rate": rate})
        for fusion in options.fusions
    ]
    by_fusion = {} if options.multipliers else recommended.multipliers_by_fusion
    return Space(
        arms=dict(zip(options.fusions, options.lay_over(arms), strict=True)),
        ranges={
            "pruning.multiplier": ranges["multipliers"],
            "optimizer.learning_rate": ranges["learning_rates"],
            "optimizer.score_learning_rate": ranges["score_learning_rates"],
        },
        sparsity_key="pruning.multiplier",
        arm_ranges={
            fusion: {"pruning.multiplier": LogUniform(*by_fusion[fusion])}
            for fusion in options.fusions
            if fusion in by_fusion
        },
    )


def _given_range(options: FrontierOptions, name: str) -> Range | None:
    """The range that was given, or one rate for all trials."""
    rate: float | None = getattr(options, name.removesuffix("s"), None)
    given: Range | None = getattr(options, name)
    return (rate, rate) if given is None and rate is not None else given


def _make_range(option: str, ends: Range) -> LogUniform:
    try:
        return LogUniform(*ends)
    except UserError as error:
        raise UserError(*(p.replace("range", option, 1) for p in error.problems)) from None


def read_earlier(options: FrontierOptions, data: Data) -> EarlierTrials:
    """Trials of other studies in the store that trained to their end, of the same task and data.

    A resumed study goes on with what it knew at its start: of trials that ended later it learns
    nothing, as it did not then.
    """
    created = read_creation_time(options.store, options.name) if options.name else None
    return [
        (known.trial, known.report)
        for known in read_known_trials(options.store.uri, options.name, created)
        # Where the data lies is not part of a trial's id.
        if known.trial.data.has_source_of(data)
    ]


def report_frontier(session: Session[F], table: pa.Table) -> pa.Table:
    """Prints, draws and keeps what came out; gives the frontier.

    Raises:
        UserError: targets that could not be searched for, after all else is printed and kept.
    """
    plan = session.study.plan
    metric = select_task(plan.representatives()[0].data).metric
    front = frontier(table)
    tables = {"trials": table, "frontier": front}
    session.print(text.frontier_table(front, metric))
    verdicts: list[Verdict] = []
    if isinstance(plan, TargetSearch):  # a search for one point says nothing of the rest
        tables["answers"] = pa.Table.from_pylist(plan.answers(), schema=ANSWERS)
        session.print(*text.describe_answers(tables["answers"], metric))
    else:
        tables |= _compare_fusions(session, table, metric)
        shares = session.options.levels or SHARES
        method = _method_of(plan)
        ratios = tables.get("ratios")
        verdicts = [judge_efficiency(ratios, shares[len(shares) // 2], session.where, method)]
    session.print(*describe_rows(table))
    figure = figures.frontier_figure(table, metric, session.study.folder / "frontier.png")
    session.publish(tables, [figure], verdicts)
    if isinstance(plan, TargetSearch) and plan.refusals:
        raise UserError(*plan.refusals)
    return front


def _method_of(plan: Plan) -> str:
    pruned = [trial.pruning for trial in plan.representatives() if trial.pruning]
    return pruned[0].method


def judge_efficiency(ratios: pa.Table | None, share: float, where: str, method: str) -> Verdict:
    """Whether BERMo needs fewer weights than BERT for the same metric, at one level.

    Args:
        ratios: From :func:`bermo_ray.results.compare_arms`; None where arms could not be compared.
        share: The level: a share of the better dense baseline's metric.
        where: Task and encoder.
        method: Of pruning, for the paper's number.
    """
    claim = Claim(
        f"with {method.replace('_', ' ')} pruning BERMo needs fewer weights than BERT (QQP)",
        source="BERMo, Table 4",
        quantity=f"at {share:g} of the dense metric, BERT's weights over BERMo's are",
        unit="×",
        published=PUBLISHED_EFFICIENCY.get(method),
        no_effect=1.0,
    )

    def estimate() -> Estimate:
        rows = [] if ratios is None else ratios.to_pylist()
        pairs = [r for r in rows if (r["first"], r["second"]) == ("last", "bermo")]
        row = next((r for r in pairs if r["share"] == share), None)
        if row is None:
            raise UserError("seeds: it takes last and bermo with two or more seeds in common")
        if row["ratio"] is None:
            missing = {"last": row["unreached_first"], "bermo": row["unreached_second"]}
            fewer = [f"{arm} in {count}" for arm, count in missing.items() if count]
            raise UserError(f"not reached by {' and '.join(fewer)} of {row['seeds']} seeds")
        return Estimate(row["ratio"], row["low"], row["high"], row["seeds"])

    return judge(claim, where, estimate)


def _compare_fusions(session: Session[F], table: pa.Table, metric: str) -> dict[str, pa.Table]:
    """Prints what the fusions keep at a size and need at a level; gives the tables."""
    options = session.options
    fusions, shares = list(options.fusions), options.levels or SHARES
    tables = {"sizes": metric_at_sizes(table, SIZES)}
    session.print(text.sizes_table(tables["sizes"], metric))
    try:
        tables["levels"] = remaining_at_levels(table, shares, arms=fusions)
        if len(fusions) > 1 and len(options.seeds) > 1:
            tables["ratios"] = compare_arms(table, shares, arms=fusions)
            tables["areas"] = compare_areas(table, arms=fusions)
    except UserError as error:  # an arm lost a seed, or has no baseline: the rest still stands
        session.print(*(f"no comparison: {problem}" for problem in error.problems))
    if "levels" in tables:
        session.print(text.levels_table(tables["levels"], tables.get("ratios"), metric))
    if "areas" in tables:
        session.print(*text.describe_areas(tables["areas"]))
    if len(options.seeds) == 1:
        session.print("one seed: no intervals, so nothing is said of which fusion is better")
    session.print(text.describe_hypervolumes(hypervolume(table, by=(*GROUP, "seed"))))
    return tables
