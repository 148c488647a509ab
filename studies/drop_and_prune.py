"""Drop layers, prune weights, or both: which mix is best at a given size?

Beyond the papers: both make an encoder smaller, but only dropping makes it faster. For each size,
every number of dropped layers K is tried with the density that makes up for it: of L layers L − K
stay, pruned to size · L / (L − K). The density is asked for and its multiplier learned in the run,
so that mixes are compared at the same size. One frontier: fewer parameters, higher metric, lower
latency.

    python studies/drop_and_prune.py                   # the embedded language, minutes, offline
    python studies/drop_and_prune.py --task qnli --backbone bert-base-uncased --counts 0 2 4 6
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pyarrow as pa

from bermo_ray import Grid, Trial
from bermo_ray.command_line.options import OneTaskOptions, by_backbone
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.errors import UserError
from bermo_ray.results import figures, predictions, text
from bermo_ray.results.choice import describe_choice
from bermo_ray.results.mixes import mixes
from bermo_ray.search.recommended import recommend
from bermo_ray.tasks.registry import get_task
from bermo_ray.training.model import starting_depth


@dataclass(frozen=True)
class Options(OneTaskOptions):
    """Layer dropping and pruning at equal sizes."""

    sizes: tuple[float, ...] = (0.5, 0.25, 0.1)
    """Shares of the encoder's weights to be left."""
    counts: Annotated[tuple[int, ...] | None, by_backbone] = None
    """Layers dropped: as many as a size allows, if not given."""
    strategy: str = "top"
    """Which layers are dropped."""
    method: str = "l0"
    """How weights are pruned: l0 or soft_movement."""
    score_learning_rate: Annotated[float | None, by_backbone] = None
    """Learning rate of the masks' scores."""
    learning_rate: Annotated[float | None, by_backbone] = None
    """Learning rate of the weights."""


def mix(base: Trial, options: Options, size: float, count: int, depth: int) -> Trial | None:
    """The trial that drops so many layers and prunes the rest to that size; None: too few left."""
    density = size * depth / (depth - count)
    if density > 1 + 1e-6:
        return None
    pruning = {"method": options.method, "target_density": density, "flat_end": 2}
    if options.method == "soft_movement":
        pruning["initial_threshold"] = 0.1  # τ is constant: the density alone changes
    drop = {"strategy": options.strategy, "count": count}
    return base.replace(
        layer_drop=drop if count else None, pruning=pruning if density < 0.995 else None
    )


def plan(options: Options) -> Grid:
    """The undropped, unpruned model, then every size with every count that allows it."""
    if options.method not in ("l0", "soft_movement"):
        raise UserError(
            f"method: got {options.method!r}, expected one that learns λ: l0 or soft_movement"
        )
    if bad := [size for size in options.sizes if not 0 < size < 1]:
        raise UserError(f"sizes: got {bad[0]:g}, expected 0 < size < 1")
    rates = {
        f"optimizer__{name}": getattr(recommend("drop_and_prune", options.backbone), name)
        if getattr(options, name) is None
        else getattr(options, name)
        for name in ("learning_rate", "score_learning_rate")
    }
    base = options.base_trial("drop_and_prune").replace(**rates)
    base = base.replace(freeze_embeddings=False)  # alike in all mixes, whether they prune or not
    depth = starting_depth(base)
    counts = range(depth) if options.counts is None else options.counts
    if bad := [count for count in counts if not 0 <= count < depth]:
        raise UserError(f"counts: got {bad[0]}, expected 0 <= count < {depth} layers")
    mixed = [mix(base, options, size, count, depth) for size in options.sizes for count in counts]
    trials = [base, *(trial for trial in mixed if trial is not None)]
    return Grid([trial.replace(seed=seed) for seed in options.seeds for trial in trials])


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the mixes."""
    answers = partial(predictions, uri=session.study.uri)
    rows = mixes(table, list(session.options.sizes), answers)
    metric = get_task(session.options.task).metric
    session.print(
        text.mixes_table(rows, metric),
        f"{describe_choice(table)}; *: the best of its size; p: McNemar against it; f: on the "
        "frontier of all three",
    )
    figure = figures.mixes_figure(rows, metric, session.study.folder / "mixes.png")
    session.publish({"trials": table, "mixes": rows}, [figure])


if __name__ == "__main__":
    run_study("drop_and_prune", Options, plan, report)
