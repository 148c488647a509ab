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

from bermo_ray.errors import UserError
from bermo_ray.results import figures, predictions, text
from bermo_ray.results.mixes import mixes
from bermo_ray.search.plan import Grid
from bermo_ray.study import OneTask, Study, by_backbone, command, parse
from bermo_ray.tasks import registry
from bermo_ray.training.trained import depth_of
from bermo_ray.trial import Trial

# epochs, batch size, learning rate, mask rate: the shipped encoder has minutes, so large rates.
EMBEDDED, PRETRAINED = (5, 16, 1e-3, 0.15), (6, 32, 3e-5, 1e-2)


@dataclass(frozen=True)
class Options(OneTask):
    """Layer dropping and pruning at equal sizes."""

    sizes: tuple[float, ...] = (0.5, 0.25, 0.1)
    """Shares of the encoder's weights to be left."""
    counts: Annotated[tuple[int, ...] | None, by_backbone] = None
    """Layers dropped: as many as a size allows, if not given."""
    strategy: str = "top"
    """Which layers go."""
    method: str = "l0"
    """How weights go: l0 or soft_movement."""
    mask_rate: Annotated[float | None, by_backbone] = None
    """Rate of the masks' scores."""
    learning_rate: Annotated[float | None, by_backbone] = None
    """Rate of the weights."""


def mix(base: Trial, options: Options, size: float, count: int, depth: int) -> Trial | None:
    """The trial that drops so many layers and prunes the rest to that size; None: too few left."""
    density = size * depth / (depth - count)
    if density > 1 + 1e-6:
        return None
    tau = 0.1 if options.method == "soft_movement" else 1.0
    pruning = {
        "method": options.method,
        "target": density,
        "initial_threshold": tau,
        "final_threshold": tau,
        "final_warmup": 2,
        "freeze_embeddings": False,  # as in the mixes that only drop
    }
    drop = {"strategy": options.strategy, "count": count}
    return base.replace(
        layer_drop=drop if count else None, pruning=pruning if density < 0.995 else None
    )


def plan(options: Options) -> Grid:
    """The whole model, then every size with every count that allows it."""
    if bad := [size for size in options.sizes if not 0 < size < 1]:
        raise UserError(f"--sizes: got {bad[0]:g}, expected 0 < size < 1")
    epochs, batch, rate, mask = EMBEDDED if options.backbone == "embedded" else PRETRAINED
    base = options.trial(epochs, batch).replace(
        optimizer__learning_rate=options.learning_rate or rate,
        optimizer__mask_rate=options.mask_rate or mask,
    )
    depth = depth_of(base)
    counts = range(depth) if options.counts is None else options.counts
    if bad := [count for count in counts if not 0 <= count < depth]:
        raise UserError(f"--counts: got {bad[0]}, expected 0 <= count < {depth} layers")
    made = [mix(base, options, s, k, depth) for s in options.sizes for k in counts]
    every = [base, *(trial for trial in made if trial is not None)]
    return Grid([trial.replace(seed=seed) for seed in options.seeds for trial in every])


def run(options: Options) -> pa.Table:
    """Runs the mixes; prints, draws and keeps them, and gives them as an Arrow table."""
    study = Study("drop_and_prune", options, plan)
    table = study.run()
    answers = partial(predictions, uri=study.uri)
    found = mixes(table, list(study.options.sizes), answers)
    metric = registry.get(study.options.task).metric
    study.console.print(text.mixes_table(found, metric))
    study.console.print(
        "*: the best of its size; p: McNemar against it; f: on the frontier of all three"
    )
    drawn = figures.mixes_figure(found, metric, study.folder / "mixes.png")
    study.publish({"trials": table, "mixes": found}, [drawn])
    return found


if __name__ == "__main__":
    command(lambda: run(parse(Options)))()
