"""How many layers can each task spare?

Layer dropping, Table 4: the most top layers that can go before a task loses 1, 2 or 3 points,
found on one half of the dev set and verified on the other. The loss is nearly monotone in the
number of layers, so halving a bracket takes the place of trying every count.

    python studies/optimal_layers.py                   # the embedded language, minutes, offline
    python studies/optimal_layers.py --tasks sst2 mnli qnli qqp stsb \\
        --backbones bert-base-uncased --seeds 0 1 2 --gpus
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from bermo_ray.errors import UserError
from bermo_ray.models import layer_drop
from bermo_ray.results import figures, layer_counts, predictions, text
from bermo_ray.search.bracket import Brackets
from bermo_ray.study import ManyTasks, Study, command, parse
from bermo_ray.training.trained import depth_of


@dataclass(frozen=True)
class Options(ManyTasks):
    """The most layers that each task can spare."""

    tasks: tuple[str, ...] = ("tense", "bigram_shift", "entities")
    """What is learned, one after the other: as --task of other studies."""
    strategy: str = "top"
    """Which layers go."""
    thresholds: tuple[float, ...] = (1.0, 2.0, 3.0)
    """Points of the metric that may be lost."""


def plan(options: Options) -> Brackets:
    """A bracket for each task and encoder, from no layer dropped to all but one."""
    layer_drop.known(options.strategy)
    if options.dev_half is not None:
        raise UserError("--dev-half: this study takes one half to search and one to verify itself")
    bases = [(base, layer_drop.most(options.strategy, depth_of(base))) for base in options.bases()]
    return Brackets(bases, options.strategy, options.thresholds, options.seeds)


def run(options: Options) -> pa.Table:
    """Searches the counts; prints, draws and keeps them, and gives them as an Arrow table."""
    study = Study("optimal_layers", options, plan)
    table = study.run()
    answers = partial(predictions, uri=study.uri)
    counts = layer_counts(table, study.options.thresholds, answers)
    study.console.print(text.counts_table(counts))
    saved = study.plan.most - table.num_rows
    study.console.print(f"{table.num_rows} trainings; trying every count would take {saved} more")
    for line in text.remarks(counts, table):
        study.console.print(line)
    drawn = [figures.counts_figure(counts, study.folder / "layer_counts.png")]
    study.publish({"trials": table, "layer_counts": counts}, drawn)
    return counts


if __name__ == "__main__":
    command(lambda: run(parse(Options)))()
