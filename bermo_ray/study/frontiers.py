"""What the frontier studies share: arms of fusions, ranges of λ and rates, a target if any."""

import contextlib
from dataclasses import dataclass
from typing import Annotated, TypeVar

import pyarrow as pa

from bermo_ray import tracking
from bermo_ray.errors import UserError
from bermo_ray.results import (
    efficiency,
    figures,
    frontier,
    hypervolume,
    load_all,
    over_seeds,
    text,
    with_most_seeds,
)
from bermo_ray.search.arms import FrontierSearch
from bermo_ray.search.plan import Plan
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.target import Target, TargetSearch
from bermo_ray.study.engine import Study
from bermo_ray.study.options import OneTask, by_backbone, default
from bermo_ray.tasks import registry
from bermo_ray.trial import Pruning, Trial

Range = tuple[float, float]
F = TypeVar("F", bound="FrontierOptions")
ANSWERS = pa.schema([
    pa.field(name, kind, metadata={"meaning": meaning})
    for name, kind, meaning in (
        ("fusion", pa.string(), ""),
        ("target", pa.float64(), "metric asked for"),
        ("dense", pa.float64(), "the baseline's, mean over seeds"),
        ("met", pa.bool_(), "whether a recipe met it on average, over all seeds"),
        ("recipe", pa.string(), "that one, the sparsest; else the one that came closest"),
        ("trial_id", pa.string(), "with the first seed"),
        ("earlier", pa.bool_(), "whether that one is an earlier study's"),
        ("final_lambda", pa.float64(), "λ"),
        ("learning_rate", pa.float64(), ""),
        ("mask_rate", pa.float64(), ""),
        ("remaining", pa.float64(), "mean over seeds"),
        ("metric", pa.float64(), "mean over seeds"),
        ("seeds", pa.int64(), "how many it has"),
        ("seeds_met", pa.int64(), "how many met the target"),
        ("sure", pa.float64(), "chance that its mean meets it, by t, from all seeds but the first"),
    )
])  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Where a search looks, if nothing else is said."""

    epochs: int
    batch_size: int
    lambdas: Range
    learning_rates: Range
    mask_rates: Range


@dataclass(frozen=True)
class FrontierOptions(OneTask):
    """Options of a search over λ and rates."""

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""
    trials: int = 8
    """Trials searched for each fusion."""
    lambdas: Annotated[Range | None, by_backbone] = None
    """Range of λ, the multiplier of the penalty (log scale)."""
    learning_rates: Annotated[Range | None, by_backbone] = None
    """Range of the weights' learning rate (log scale)."""
    mask_rates: Annotated[Range | None, by_backbone] = None
    """Range of the scores' and fusion scalars' rate (log scale)."""
    target: Annotated[str | None, default("the whole frontier")] = None
    """Search for the fewest weights that keep a metric: 0.885, or 0.99x of the dense baseline."""
    match: Annotated[str | None, default("each its own")] = None
    """The other fusions aim at what this one's answer reached (its own target: 0.99x, if none)."""
    fresh: bool = False
    """Learn nothing from earlier studies in the store."""


def space(options: FrontierOptions, pruning: Pruning, usual: Setting) -> Space:
    """An arm for each fusion, and each fusion's dense baseline to compare with."""
    lambdas = _range("--lambdas", options.lambdas or usual.lambdas)
    learning_rates = _range("--learning-rates", options.learning_rates or usual.learning_rates)
    mask_rates = _range("--mask-rates", options.mask_rates or usual.mask_rates)
    base = options.trial(usual.epochs, usual.batch_size).replace(
        pruning=pruning, optimizer__learning_rate=learning_rates.quantile(0.5)
    )
    arms = {fusion: base.replace(fusion__name=fusion) for fusion in options.fusions}
    return Space(
        arms=arms,
        ranges={
            "pruning__final_lambda": lambdas,
            "optimizer__learning_rate": learning_rates,
            "optimizer__mask_rate": mask_rates,
        },
        spread="pruning__final_lambda",
        fixed=tuple(arm.replace(pruning=None) for arm in arms.values()),
    )


def _range(flag: str, ends: Range) -> LogUniform:
    try:
        return LogUniform(*ends)
    except UserError as error:
        raise UserError(*(p.replace("range", flag, 1) for p in error.problems)) from None


def search(options: FrontierOptions, pruning: Pruning, usual: Setting) -> Plan:
    """The plan: the whole frontier or, with a target, its sparsest point that meets it."""
    where = space(options, pruning, usual)
    data_dir = next(iter(where.arms.values())).data.data_dir
    earlier = [] if options.fresh else _earlier(options, data_dir)
    if options.target is None and options.match is None:
        return FrontierSearch(where, options.trials, options.seeds, earlier)
    target = Target.parse(options.target or "0.99x")
    metric = registry.get(options.task).metric
    if not target.relative and target.value > 1:
        raise UserError(f"--target: got {target.value:g}, but {metric} is at most 1")
    return TargetSearch(where, target, options.trials, options.seeds, options.match, earlier)


def _earlier(
    options: FrontierOptions, data_dir: str | None
) -> list[tuple[Trial, dict[str, float | str]]]:
    """Finished trials of other studies, of the same task and data. A resumed study goes
    on with what it knew at its start; one killed before that was kept starts anew with these."""
    uri = tracking.store_uri(options.runs.expanduser(), options.tracking_uri)
    found = []
    for row in load_all(uri).to_pylist():
        own = row["study"] == options.name  # one that is resumed
        if row["task"] == options.task and row["status"] == "completed" and not own:
            with contextlib.suppress(UserError):  # written by a version with other settings
                trial = Trial.from_json(row["trial"])
                if trial.data.data_dir == data_dir:  # it is not part of a trial's id
                    found.append((trial, row))
    return found


def conclude(study: Study[F], table: pa.Table) -> pa.Table:
    """Prints, draws and keeps what came out; gives the frontier, of means over seeds."""
    metric = registry.get(study.options.task).metric
    merged = with_most_seeds(over_seeds(table))
    front = frontier(merged)
    study.console.print(text.frontier_table(front, metric))
    tables = {"trials": table, "frontier": front}
    if isinstance(study.plan, FrontierSearch):  # a search for one point says nothing of the rest
        areas = [r for r in hypervolume(merged).to_pylist() if r["method"] != "dense"]
        said = ", ".join(f"{r['fusion']} {r['hypervolume']:.4f}" for r in areas)
        study.console.print(f"hypervolume (higher is better): {said}")
    if isinstance(study.plan, TargetSearch):
        answers = pa.Table.from_pylist(study.plan.answers(), schema=ANSWERS)
        tables |= {"answers": answers}
        for line in text.answers(answers, metric):
            study.console.print(line)
        for line in _compared(study, table, answers):
            study.console.print(line)
    figure = figures.frontier_figure(table, front, metric, study.folder / "frontier.png")
    study.publish(tables, [figure])
    if isinstance(study.plan, TargetSearch) and (refused := study.plan.refused):
        raise UserError(*refused)
    return front


def _compared(study: Study[F], table: pa.Table, answers: pa.Table) -> list[str]:
    """With --match, how many times fewer weights the others need than the one that is matched."""
    import pyarrow.compute as pc

    first = study.options.match
    if first is None:
        return []
    whole = with_most_seeds(over_seeds(table))["recipe"]
    kept = pc.and_(pc.not_equal(table["method"], "dense"), pc.is_in(table["recipe"], whole))
    pruned = table.filter(kept)
    lines = []
    for row in answers.to_pylist():
        if row["fusion"] == first:
            continue
        a, b = (pruned.filter(pc.equal(pruned["fusion"], f)) for f in (first, row["fusion"]))
        found = efficiency(a, b, row["target"])
        if not found.ratio > 0:  # NaN too
            lines.append(f"at {row['target']:.4f}: one of {first} and {row['fusion']} has no point")
            continue
        interval = "one seed, so no interval"
        if found.seeds > 1:
            interval = f"95 % over {found.seeds} seeds: {found.low:.2f} to {found.high:.2f}"
        if found.undecided > 0.05:  # an interval of the others alone would be too narrow
            interval = f"no interval: {found.undecided:.0%} of resamples do not get there"
        lines.append(
            f"at {row['target']:.4f} {row['fusion']} needs 1/{found.ratio:.2f} of {first}'s weights"
            f" ({interval})"
        )
    return lines
