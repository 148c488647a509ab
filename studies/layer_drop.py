"""Which layers can be dropped, and what does it cost?

Layer dropping, Figure 2 and Tables 2, 3 and 5 to 7: an encoder loses K layers by one of several
strategies and is fine-tuned as usual. Without half of its layers BERT is best where the top ones
went, 2.91 points below the undropped model on the mean over tasks, and worst where the bottom ones
went; inference takes half of the time. Whether it was fine-tuned before makes little difference.

    python studies/layer_drop.py                       # the embedded language, minutes, offline
    python studies/layer_drop.py --paper --gpus        # GLUE on five encoders
    python studies/layer_drop.py --from-fine-tuned --strategies top --counts 3  # Table 7
    python studies/layer_drop.py --epochs-per-layer 2 --epochs 12               # gradually (§6.5)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from bermo_ray import Grid, Trial, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject, by_backbone
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.models.layer_strategies import POSITIONAL, SCORED
from bermo_ray.results import figures, layer_text, text
from bermo_ray.results.inference_times import time_by_depth
from bermo_ray.results.layer_claims import judge_dropping
from bermo_ray.results.layer_counts import encoders_with_shared_layers
from bermo_ray.search.depths import find_depth
from bermo_ray.search.layer_grid import drop_layers
from bermo_ray.training.inference_time import measure_encoders
from bermo_ray.training.layer_scores import layer_scores

GLUE = ("sst2", "mnli", "qnli", "qqp", "stsb", "rte", "mrpc")
ENCODERS = (
    "bert-base-uncased", "roberta-base", "xlnet-base-cased", "distilbert-base-uncased",
    "albert-base-v2",
)  # fmt: skip


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Strategies of layer dropping, by the number of layers dropped."""

    DEFAULT = Subject(seeds=(0, 1, 2))
    PAPER = Subject(GLUE, ENCODERS, seeds=(0,))
    FIELD_OPTIONS = ManyTasksOptions.FIELD_OPTIONS | {
        "layer_drop.count": "counts",
        "layer_drop.strategy": "strategies",
        "layer_drop.threshold": "thresholds",
    }

    strategies: tuple[str, ...] = (*POSITIONAL, *SCORED)
    """Which layers are dropped."""
    counts: Annotated[tuple[int, ...] | None, by_backbone] = None
    """How many: a sixth, a third and a half of the layers, if not given."""
    thresholds: Annotated[tuple[float, ...] | None, by_backbone] = None
    """Strategy contribution drops all layers more similar than this as well, however many."""
    from_fine_tuned: bool = False
    """Drop layers of models that are fine-tuned already as well, and fine-tune them again."""
    epochs_per_layer: int | None = None
    """Gradually: one layer each time so many epochs have passed; none: all before training."""


def undropped(options: Options) -> list[Trial]:
    """Every task on every encoder with every seed, all layers left."""
    bases = options.base_trials("layer_drop")
    return [base.replace(seed=seed) for seed in options.seeds for base in bases]


def teachers(options: Options) -> list[Trial]:
    """What has to be fine-tuned before its layers are dropped."""
    return undropped(options) if options.from_fine_tuned else []


def plan(options: Options, checkpoints: Mapping[str, str] | None = None) -> Grid:
    """The undropped models, those with layers dropped and, of fine-tuned ones, these again."""
    trials = bases = undropped(options)
    drops = (options.strategies, options.counts, options.thresholds, options.epochs_per_layer)
    for base in bases:
        shorter = drop_layers(base, find_depth(base, options.paper), *drops)
        folder = (checkpoints or {}).get(base.id)
        again = [trial.replace(warm_start=folder) for trial in shorter] if folder else []
        trials = [*trials, *shorter, *again]
    return Grid(options.lay_over(trials))


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps what each strategy and count costs and saves."""
    options, folder = session.options, session.study.folder
    bases = options.base_trials("layer_drop")
    scores = pa.concat_tables([layer_scores(base) for base in bases])
    times = measure_encoders(bases, table, options.gpus, options.cpus_per_worker)
    answers = results.predictions_of(table, session.study.uri)
    losses = results.layer_losses(table, answers, time_by_depth(times))
    session.print(text.scores_table(scores), *layer_text.losses_tables(losses))
    session.print(*layer_text.describe_losses(losses), *layer_text.savings_tables(losses, times))
    for name in encoders_with_shared_layers(losses):
        session.print(f"{name}: its layers share their weights: faster, not smaller")
    figure = figures.strategies_figure(losses, folder / "strategies.png")
    verdicts = judge_dropping(table, times, options.strategies, session.where)
    tables = {"trials": table, "losses": losses, "layer_scores": scores, "inference_times": times}
    session.publish(tables, [figure], verdicts)


if __name__ == "__main__":
    run_study("layer_drop", Options, plan, report, teachers)
