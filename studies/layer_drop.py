"""Which layers can go, and what does it cost?

Layer dropping, Figure 2 and Tables 2 and 3: an encoder loses K layers by one of several strategies
and is fine-tuned as usual. For each task and encoder: the metric against the whole model, the
parameters left, and how much faster fine-tuning and inference become.

    python studies/layer_drop.py                       # the embedded language, minutes, offline
    python studies/layer_drop.py --tasks sst2 qnli stsb --counts 2 4 6 \\
        --backbones bert-base-uncased roberta-base --gpus
    python studies/layer_drop.py --start TRIAL         # from a fine-tuned model (Table 7)
    python studies/layer_drop.py --every 2 --epochs 12 # one layer every two epochs (§6.5)
"""

from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from bermo_ray.models import layer_drop
from bermo_ray.results import figures, layer_losses, text
from bermo_ray.results.layer_counts import speed_only
from bermo_ray.search.plan import Grid
from bermo_ray.study import ManyTasks, Study, by_backbone, command, parse
from bermo_ray.training.layer_scores import layer_scores
from bermo_ray.training.trained import depth_of
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class Options(ManyTasks):
    """Strategies of layer dropping, by the number of layers dropped."""

    strategies: tuple[str, ...] = (
        "top", "bottom", "alternate_even", "alternate_odd", "symmetric",
        "variance", "aggregate", "contribution",
    )  # fmt: skip
    """Which layers go."""
    counts: Annotated[tuple[int, ...] | None, by_backbone] = None
    """How many: a sixth, a third and a half of the layers, if not given."""
    every: int | None = None
    """Gradually: one layer each time so many epochs have passed; none: all before training."""


def drops(options: Options, base: Trial) -> list[Trial]:
    """The whole model, then every strategy with every count."""
    depth = depth_of(base)
    counts = options.counts or sorted({round(depth * share) for share in (1 / 6, 1 / 3, 1 / 2)})
    return [base] + [
        base.replace(layer_drop={"strategy": strategy, "count": count, "every": options.every})
        for count in counts
        for strategy in options.strategies
        # Where half the layers are all that alternate ones can give, more is not a mistake.
        if options.counts or count <= layer_drop.most(strategy, depth)
    ]


def plan(options: Options) -> Grid:
    """Every task and encoder, every seed."""
    every = [trial for base in options.bases() for trial in drops(options, base)]
    return Grid([trial.replace(seed=seed) for seed in options.seeds for trial in every])


def run(options: Options) -> pa.Table:
    """Runs the grid; prints, draws and keeps the losses, and gives them as an Arrow table."""
    study = Study("layer_drop", options, plan)
    table = study.run()
    scores = pa.concat_tables([layer_scores(base) for base in study.options.bases()])
    losses = layer_losses(table)
    study.console.print(text.scores_table(scores))
    study.console.print(text.losses_table(losses))
    for name in speed_only(losses):
        study.console.print(f"{name}: its layers share their weights: faster, not smaller")
    drawn = figures.strategies_figure(losses, study.folder / "strategies.png")
    study.publish({"trials": table, "losses": losses, "layer_scores": scores}, [drawn])
    return losses


if __name__ == "__main__":
    command(lambda: run(parse(Options)))()
