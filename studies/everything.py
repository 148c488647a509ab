"""Fusion, pruning, dropping and distillation at once: what is each worth at a given size?

Beyond the papers: each has one of the ingredients. Layers that are dropped and weights that are
pruned both make an encoder smaller, but only dropping makes it faster. For each size, every number
of dropped layers K is tried with the density that makes up for it: of L layers L − K stay, pruned
to size · L / (L − K). The density is asked for and its multiplier learned in the run, so that mixes
are compared at the same size, with the last layer's state and with BERMo, without a teacher and
with one. One frontier: fewer parameters, higher metric, lower latency.

    python studies/everything.py                       # the embedded language, minutes, offline
    python studies/everything.py --task qnli --backbone bert-base-uncased --counts 0 2 4 6 --gpus
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from bermo_ray import Grid, Trial
from bermo_ray.command_line.options import OneTaskOptions, Subject
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.results import figures, predictions_of, text
from bermo_ray.results.choice import describe_choice
from bermo_ray.results.mixes import describe_frontier, judge_ingredients, mixes
from bermo_ray.search.depths import find_depth
from bermo_ray.search.mix_grid import mix_sizes
from bermo_ray.tasks.registry import select_task


@dataclass(frozen=True)
class Options(OneTaskOptions):
    """All ingredients of small models, at equal sizes."""

    DEFAULT = Subject(seeds=(0, 1))  # a third would take more than five minutes

    sizes: tuple[float, ...] = (0.5, 0.2)
    """Shares of the encoder's weights to be left."""
    counts: tuple[int, ...] = (0, 2)
    """Layers dropped, where a size allows so many."""
    fusions: tuple[str, ...] = ("last", "bermo")
    """How layers' states become one."""
    strategy: str = "top"
    """Which layers are dropped."""
    method: str = "l0"
    """How weights are pruned: l0 or soft_movement."""


def teachers(options: Options) -> list[Trial]:
    """A complete model of the last layer's state, with the first seed."""
    return [] if options.teacher else [options.base_trial("dense")]


def plan(options: Options, checkpoints: Mapping[str, str]) -> Grid:
    """The complete model of each fusion, then every size with every count, alone and taught."""
    alone = replace(options, teacher=None)
    teacher = options.base_trial("dense")
    folder = teacher.distillation.teacher if teacher.distillation else checkpoints[teacher.id]
    depth = find_depth(teacher)
    trials = [alone.base_trial("dense", fusion) for fusion in options.fusions]
    for fusion in options.fusions:
        # Embeddings are trained in all mixes alike, whether they prune or not.
        base = alone.base_trial("target_density", fusion, freeze_embeddings=False)
        small = mix_sizes(
            base, depth, options.sizes, options.counts, options.strategy, options.method
        )
        trials += [*small, *(trial.replace(distillation={"teacher": folder}) for trial in small)]
    return alone.make_grid(trials)


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the mixes, and what each ingredient is worth."""
    options = session.options
    rows = mixes(table, options.sizes, predictions_of(table, session.study.uri))
    metric = select_task(session.study.plan.representatives()[0].data).metric
    session.print(
        text.mixes_table(rows, metric),
        f"{describe_choice(table)}; *: the best of its size; p: McNemar against it; f: on the "
        "frontier of all three",
        *describe_frontier(rows, table),
    )
    figure = figures.mixes_figure(rows, metric, session.study.folder / "mixes.png")
    verdicts = judge_ingredients(table, options.sizes, session.where)
    session.publish({"trials": table, "mixes": rows}, [figure], verdicts)


if __name__ == "__main__":
    run_study("everything", Options, plan, report, teachers)
