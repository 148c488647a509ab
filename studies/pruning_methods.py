"""Does a mix of all layers help whichever way the weights are pruned?

BERMo §4.2.3, Tables 4 and 7 to 10: BERT and BERMo are pruned by magnitude, L0, movement and soft
movement, each at one λ and its rates. With magnitude and movement pruning, which keep 10 %, the two
are comparable: here, no more than one point apart. With L0 and soft movement the penalty decides
what remains, and on QQP BERMo keeps 1.40 and 1.29 times fewer weights at about the same accuracy.
Each λ gives one point, whose weights and metric stand side by side here (the shipped encoder's λ
were set by hand); the frontier studies compare weights at the same metric.

    python studies/pruning_methods.py                  # the embedded language, minutes, offline
    python studies/pruning_methods.py --methods l0 --set pruning.multiplier=20 --learning-rate 1e-3
    python studies/pruning_methods.py --paper --gpus   # MNLI, QQP, SQuAD on bert-base-uncased
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from bermo_ray import Grid, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.results import published_pruning as paper
from bermo_ray.results.metric_means import mean_metrics
from bermo_ray.results.remaining_weights import compare_remaining, describe_point

Method = Literal["magnitude", "l0", "movement", "soft_movement"]
EFFICIENCY = {"l0": 1.40, "soft_movement": 1.29}  # on QQP, of the methods with a penalty


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Four ways of pruning, plain BERT and BERMo."""

    DEFAULT = Subject(seeds=(0, 1, 2))
    PAPER = Subject(("mnli", "qqp", "squad"), ("bert-base-uncased",), seeds=(0,))

    methods: tuple[Method, ...] = ("magnitude", "l0", "movement", "soft_movement")
    """How the weights are pruned."""
    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""


def plan(options: Options) -> Grid:
    """Every method on every task with every fusion, each at the λ and rates set for it."""
    trials = (options.base_trials(method, options.fusions) for method in options.methods)
    return options.make_grid(trial for group in trials for trial in group)


def claim_weights(rows: pa.Table, method: str) -> results.Claim:
    """The paper's claim, held against the λ that were set: metrics need not be the same there."""
    point = describe_point(rows, "last", "bermo")
    return results.Claim(
        f"with {method} pruning BERT keeps more weights, on QQP at about the same accuracy",
        source="BERMo, Table 4",
        quantity=f"with {method} pruning at {point}, the weights of BERT over BERMo's are",
        unit="×",
        published=EFFICIENCY[method],
        no_effect=1.0,
    )


def make_verdicts(where: str, table: pa.Table) -> Iterator[results.Verdict]:
    """Of each method the metrics; where a penalty decides what remains, the weights too."""
    tasks = list(dict.fromkeys(table["task"].to_pylist()))
    for method in dict.fromkeys(table["method"].to_pylist()):
        rows = results.select(table, method=method)
        comparable = paper.claim_comparable(tasks, method, "T4", f"with {method} pruning")
        arms = ("fusion", "last", "bermo")
        yield results.judge(comparable, where, results.compare_by_seed, rows, *arms)
        for task in tasks if method in EFFICIENCY else ():
            if paper.ASKED.get(task, task) not in ("mnli", "squad"):  # QQP alone is claimed
                alike, at = results.select(rows, task=task), where if len(tasks) == 1 else task
                claim = claim_weights(alike, method)
                yield results.judge(claim, at, compare_remaining, alike, "bermo", "last")


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps what each method leaves and what it reaches, beside the paper's."""
    lines, asked = ["task", "method"], paper.name_asked(session.options.tasks)
    weights = results.mean_over_seeds(table, [*lines, "fusion"], "remaining")
    metrics = mean_metrics(table, [*lines, "metric_name", "fusion"], paper.OTHER_METRICS)
    shares, told = paper.published_remaining(), paper.published_metrics("T4")
    figures = [
        session.show_arms(means, label, rows, published=paper_values, note=asked, file=file)
        for means, label, rows, paper_values, file in (
            (weights, "Remaining weights, %", lines, shares, "remaining.png"),
            (metrics, "Metric, %", [*lines, "metric_name"], told, "metrics.png"),
        )
    ]
    tables = {"trials": table, "remaining": weights, "metrics": metrics}
    session.publish(tables, figures, list(make_verdicts(session.where, table)))


if __name__ == "__main__":
    run_study("pruning_methods", Options, plan, report)
