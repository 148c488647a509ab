"""How many layers can each task spare?

Layer dropping §6.1, Table 4: the most top layers that can be dropped before a task loses 1, 2 or 3
points, found on one half of the dev set and verified on the other. Of twelve layers one to ten can
go, by task and encoder, and 37 of 45 counts are within their threshold on the other half too. The
loss is nearly monotone in the number of layers, so halving a bracket takes the place of trying
every count.

    python studies/optimal_layers.py                   # the embedded language, minutes, offline
    python studies/optimal_layers.py --paper --gpus    # GLUE on three encoders
"""

from dataclasses import dataclass

import pyarrow as pa

from bermo_ray.command_line.options import ManyTasksOptions, Subject
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.models.layer_strategies import check_strategy, most_droppable
from bermo_ray.results import figures, layer_counts, predictions_of, text
from bermo_ray.results.layer_claims import describe_carried, judge_counts
from bermo_ray.search.depths import find_depth
from bermo_ray.search.layer_count_search import LayerCountSearch


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """The most layers that each task can spare."""

    DEFAULT = Subject(("tense", "bigram_shift", "entities"), seeds=(0, 1, 2))
    PAPER = Subject(
        ("sst2", "mnli", "qnli", "qqp", "stsb"),
        ("bert-base-uncased", "roberta-base", "xlnet-base-cased"),
    )

    strategy: str = "top"
    """Which layers are dropped."""
    thresholds: tuple[float, ...] = (1.0, 2.0, 3.0)
    """Points of the metric that may be lost."""


def plan(options: Options) -> LayerCountSearch:
    """A bracket for each task and encoder, from no layer dropped to all but one."""
    check_strategy(options.strategy)
    # One half of dev finds the counts and the other verifies them, in the paper too.
    bases = options.lay_over(options.base_trials("layer_drop", data={"whole_dev": False}))
    most = [most_droppable(options.strategy, find_depth(base, options.paper)) for base in bases]
    pairs = list(zip(bases, most, strict=True))
    return LayerCountSearch(pairs, options.strategy, options.thresholds, options.seeds)


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the counts, beside the paper's."""
    study = session.study
    answers = predictions_of(table, study.uri)
    counts = layer_counts(table, session.options.thresholds, answers)
    saved = study.plan.most_trials - table.num_rows
    session.print(
        text.counts_table(counts),
        f"{table.num_rows} trainings; trying every count would take {saved} more",
        *text.remarks(counts, table),
        describe_carried(counts),
    )
    figure = figures.counts_figure(counts, study.folder / "layer_counts.png")
    verdict = judge_counts(table, counts, session.where)
    session.publish({"trials": table, "layer_counts": counts}, [figure], [verdict])


if __name__ == "__main__":
    run_study("optimal_layers", Options, plan, report)
