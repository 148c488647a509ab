"""Does a mix of all layers need fewer epochs to be pruned?

BERMo §4.2.2, Figure 5 and Table 7: movement pruning to 10 % of the weights with several numbers of
epochs, each a run of its own whose schedule ends with it. BERMo converges 1.67× faster than BERT on
MNLI and 1.15× on QQP, and about alike on SQuAD. The figure is lost. The fewest epochs are what
Table 7's warm-up and flat ends leave room for (MNLI 2, QQP 5, SQuAD 3), the most are Table 8's.

Two answers. Read off the means, as off the figure: where does each fusion match the best that the
other gets to? And the verdict, from each seed's own curve: how many times BERT's epochs does BERMo
need to the highest level that all seeds of both reach? bermo_ray/results/convergence.py says why.

    python studies/convergence.py                      # the embedded language, minutes, offline
    python studies/convergence.py --paper --gpus       # MNLI, QQP, SQuAD on bert-base-uncased
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa

from bermo_ray import Grid, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject, default
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.errors import UserError
from bermo_ray.results import convergence
from bermo_ray.results.arm_text import arms_table
from bermo_ray.results.seed_views import curves_figure

EPOCH_COUNTS = (1, 2, 3, 4, 6)
PAPER_EPOCH_COUNTS = {"mnli": range(2, 7), "qqp": range(5, 11), "squad": range(3, 11)}
SPEEDUPS = {"mnli": 1.67, "qqp": 1.15}  # the text's
SAME_MARGIN = 0.1  # of SQuAD, where the two are alike: within 0.9 and 1.1 times the epochs


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Movement pruning to 10 % with several numbers of epochs, plain BERT and BERMo."""

    DEFAULT = Subject(seeds=(0, 1, 2))
    PAPER = Subject(tuple(PAPER_EPOCH_COUNTS), ("bert-base-uncased",), seeds=(0,))

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""
    epoch_counts: Annotated[
        tuple[int, ...], default("1 2 3 4 6; with --paper 2-6 of mnli, 5-10 of qqp, 3-10 of squad")
    ] = ()
    """Numbers of epochs, each a run of its own."""


def plan(options: Options) -> Grid:
    """Every task and fusion with every number of epochs."""
    counts = options.epoch_counts
    if counts and len(set(counts)) < max(2, len(counts)):
        raise UserError(f"epoch_counts: got {list(counts)}, expected two or more, all different")
    planned = PAPER_EPOCH_COUNTS if options.paper else {}
    return options.make_grid(
        trial.replace(epochs=epochs)
        for trial in options.base_trials("movement", options.fusions)
        for epochs in counts or planned.get(trial.data.task, EPOCH_COUNTS)
    )


def make_claim(task: str) -> results.Claim:
    """What the paper says of a task; of one that is not its own, that BERMo is faster."""
    return results.Claim(
        "BERMo converges 1.67× faster than BERT on MNLI, 1.15× on QQP, alike on SQuAD",
        source="BERMo, Figure 5",
        quantity="to the highest level that all seeds reach BERMo needs",
        unit="× BERT's epochs",
        published=1 / SPEEDUPS[task] if task in SPEEDUPS else None,
        expects="same" if task == "squad" else "less",
        no_effect=1.0,
        margin=SAME_MARGIN if task == "squad" else 0.0,
    )


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the metric against epochs, and who needs how many."""
    lines, arms = ("task", "epochs"), ("fusion", "last", "bermo")
    means = results.mean_over_seeds(table, (*lines, "fusion"))
    session.print(arms_table("Pruned to 10 %, %", means, lines, "fusion"))
    matches = convergence.find_matches(table, *arms)
    told = results.published_values("bermo", "F5", ("task", "fusion"))
    session.print(*convergence.describe_matches(matches, told))
    session.print(*convergence.describe_levels(table, "fusion", arms[1:]))
    file = session.study.folder / "convergence.png"
    figure = curves_figure(table, "epochs", "fusion", "pruned to 10 %, %", file, panel="task")
    verdicts = [
        results.judge(
            make_claim(task),
            f"{task} on {Path(backbone).name}",
            convergence.compare_epochs,
            rows,
            *arms,
        )
        for (task, backbone), rows in convergence.split_tasks(table).items()
    ]
    session.publish({"trials": table, "means": means, "matches": matches}, [figure], verdicts)


if __name__ == "__main__":
    run_study("convergence", Options, plan, report)
