"""Does a mix of all layers keep pruning from diverging?

BERMo §4.2.1, Tables 3 and 6: movement pruning to 10 % of the weights on a small task, SST-2, with
ten seeds. Plain BERT diverges with eight of them, BERMo with none; with the two seeds that BERT
completes, BERMo is better by 6.18 points. Those seeds are what is left, not drawn at large: where
many diverge, the second verdict is of lucky runs.

    python studies/stability.py                        # the embedded language, minutes, offline
    python studies/stability.py --paper --gpus         # SST-2 on bert-base-uncased
"""

from dataclasses import dataclass

import pyarrow as pa

from bermo_ray import Grid, results
from bermo_ray.command_line.options import OneTaskOptions, Subject
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.results.seed_views import seeds_figure, seeds_table
from bermo_ray.results.stability import compare_divergence, measure_stability

FEWER_DIVERGE = results.Claim(
    "BERT diverges with 8 seeds of 10, BERMo with none",
    source="BERMo, Table 3",
    quantity="from BERT to BERMo the share of runs that diverge changes by",
    published=-80.0,
    expects="less",
)
BETTER = results.Claim(
    "pruned to 10 %, BERMo is better than BERT where both complete",
    source="BERMo, Table 3",
    quantity="with the seeds that complete in both, BERMo is better than BERT by",
    published=6.18,
)


@dataclass(frozen=True)
class Options(OneTaskOptions):
    """Ten seeds of movement pruning to 10 %, plain BERT and BERMo."""

    DEFAULT = Subject(seeds=tuple(range(10)))
    PAPER = Subject(
        ("sst2",), ("bert-base-uncased",), seeds=(9, 25, 39, 52, 59, 63, 77, 87, 91, 96)
    )

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""


def plan(options: Options) -> Grid:
    """Every fusion, pruned to 10 %."""
    return options.make_grid(options.base_trial("movement", name) for name in options.fusions)


def published_runs() -> pa.Table:
    """Table 3 as trials: a run without a number diverges."""
    runs = [
        {
            "fusion": row["fusion"],
            "seed": row["seed"],
            "status": "diverged" if row["value"] is None else "completed",
            "metric_reported": None if row["value"] is None else row["value"] / 100,
        }
        for row in results.published("bermo", "T3").to_pylist()
    ]
    return pa.Table.from_pylist(runs)


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps each seed's metric, or that it diverges, beside the paper's."""
    name = f"{session.options.task}, {table['metric_name'][0].as_py()}, %"
    session.print(
        seeds_table(f"Pruned to 10 %: {name}; the paper: sst2", table, "fusion", published_runs())
    )
    file = session.study.folder / "stability.png"
    figure = seeds_figure(table, "fusion", name, file, title="movement pruning to 10 %")
    estimates = {FEWER_DIVERGE: compare_divergence, BETTER: results.compare_by_seed}
    verdicts = [
        results.judge(claim, session.where, estimate, table, "fusion", "last", "bermo")
        for claim, estimate in estimates.items()
    ]
    tables = {"trials": table, "stability": measure_stability(table, ("fusion",))}
    session.publish(tables, [figure], verdicts)


if __name__ == "__main__":
    run_study("stability", Options, plan, report)
