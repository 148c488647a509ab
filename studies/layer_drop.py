"""Which layers can be dropped, and what does it cost?

Layer dropping, Figure 2 and Tables 2 and 3: an encoder loses K layers by one of several strategies
and is fine-tuned as usual. For each task and encoder: the metric against the undropped model, the
parameters left, and how much faster fine-tuning and inference become.

    python studies/layer_drop.py                       # the embedded language, minutes, offline
    python studies/layer_drop.py --tasks sst2 qnli stsb --counts 2 4 6 \\
        --backbones bert-base-uncased roberta-base --gpus
    python studies/layer_drop.py --warm-start TRIAL    # from a fine-tuned model (Table 7)
    python studies/layer_drop.py --epochs-per-layer 2 --epochs 12 # gradually (§6.5)
"""

from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from bermo_ray import Grid, Trial
from bermo_ray.command_line.options import ManyTasksOptions, by_backbone
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.models.layer_strategies import most_droppable
from bermo_ray.results import figures, layer_losses, text
from bermo_ray.results.layer_counts import encoders_with_shared_layers
from bermo_ray.training.layer_scores import layer_scores
from bermo_ray.training.model import starting_depth


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Strategies of layer dropping, by the number of layers dropped."""

    FIELD_OPTIONS = ManyTasksOptions.FIELD_OPTIONS | {
        "layer_drop.count": "counts",
        "layer_drop.strategy": "strategies",
    }

    strategies: tuple[str, ...] = (
        "top", "bottom", "alternate_even", "alternate_odd", "symmetric",
        "variance", "aggregate", "contribution",
    )  # fmt: skip
    """Which layers are dropped."""
    counts: Annotated[tuple[int, ...] | None, by_backbone] = None
    """How many: a sixth, a third and a half of the layers, if not given."""
    epochs_per_layer: int | None = None
    """Gradually: one layer each time so many epochs have passed; none: all before training."""


def drop_layers(options: Options, base: Trial) -> list[Trial]:
    """The undropped model, then every strategy with every count."""
    depth = starting_depth(base)
    counts = options.counts or sorted({round(depth * share) for share in (1 / 6, 1 / 3, 1 / 2)})
    return [base] + [
        base.replace(
            layer_drop={
                "strategy": strategy,
                "count": count,
                "epochs_per_layer": options.epochs_per_layer,
            }
        )
        for count in counts
        for strategy in options.strategies
        # Where half the layers are all that alternate ones can give, more is not a mistake.
        if options.counts or count <= most_droppable(strategy, depth)
    ]


def plan(options: Options) -> Grid:
    """Every task and encoder, every seed."""
    bases = options.base_trials("layer_drop")
    trials = [trial for base in bases for trial in drop_layers(options, base)]
    return Grid([trial.replace(seed=seed) for seed in options.seeds for trial in trials])


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps what each strategy and count costs."""
    bases = session.options.base_trials("layer_drop")
    scores = pa.concat_tables([layer_scores(base) for base in bases])
    losses = layer_losses(table)
    session.print(text.scores_table(scores), text.losses_table(losses))
    for name in encoders_with_shared_layers(losses):
        session.print(f"{name}: its layers share their weights: faster, not smaller")
    figure = figures.strategies_figure(losses, session.study.folder / "strategies.png")
    session.publish({"trials": table, "losses": losses, "layer_scores": scores}, [figure])


if __name__ == "__main__":
    run_study("layer_drop", Options, plan, report)
