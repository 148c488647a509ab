"""Does a teacher make up for what pruning loses, and is BERMo still as good as BERT then?

BERMo §4.2.4, Tables 5 and 11: movement pruning to 10 %, taught by a dense BERT that was fine-tuned
on the same task (0.1 of the labels' loss, 0.9 of the teacher's, temperature 2). Against Table 4,
without a teacher, both gain on every task: on MNLI BERT 0.31 points and BERMo 0.79, on SQuAD 1.70
and 2.57. With a teacher the two are comparable: here, no more than one point apart. (Table 5's
columns of QQP are swapped; here they are put right.)

    python studies/distillation.py                     # the embedded language, minutes, offline
    python studies/distillation.py --teacher FOLDER    # a fine-tuned model of your own
    python studies/distillation.py --paper --gpus      # MNLI, QQP, SQuAD on bert-base-uncased
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray import Grid, Trial, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject
from bermo_ray.command_line.shell import Session, run_study
from bermo_ray.results import published_pruning as paper
from bermo_ray.results.metric_means import mean_metrics


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Movement pruning to 10 % with and without a teacher, plain BERT and BERMo."""

    DEFAULT = Subject(seeds=(0, 1, 2))
    PAPER = Subject(("mnli", "qqp", "squad"), ("bert-base-uncased",), seeds=(0,))

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""


def teachers(options: Options) -> list[Trial]:
    """A dense BERT of each task, with the first seed; none where a teacher is given."""
    return [] if options.teacher else options.base_trials("dense")


def plan(options: Options, checkpoints: Mapping[str, str]) -> Grid:
    """Every task with every fusion, pruned without a teacher and with one."""
    alone = replace(options, teacher=None)
    pruned = alone.base_trials("movement", options.fusions)
    if options.teacher:
        return alone.make_grid([*pruned, *options.base_trials("movement", options.fusions)])
    folders = {(t.data.task, t.backbone): checkpoints[t.id] for t in teachers(options)}
    taught = (t.replace(distillation={"teacher": folders[t.data.task, t.backbone]}) for t in pruned)
    return alone.make_grid([*pruned, *taught])


def make_verdicts(where: str, table: pa.Table) -> list[results.Verdict]:
    """What the teacher gives each fusion, and whether the fusions are comparable with it."""
    tasks = list(dict.fromkeys(table["task"].to_pylist()))
    before, after = paper.published_metrics("T4"), paper.published_metrics("T5")
    verdicts = []
    for fusion, model in (("last", "BERT"), ("bermo", "BERMo")):
        claim = results.Claim(
            f"with a teacher pruned {model} is better",
            source="BERMo, Tables 4 and 5",
            quantity=f"with a teacher pruned {model} is better by",
            published=paper.mean_difference(tasks, "movement", (before, fusion), (after, fusion)),
        )
        rows = results.select(table, fusion=fusion)
        arms = ("teacher", "without", "with")
        verdicts.append(results.judge(claim, where, results.compare_by_seed, rows, *arms))
    comparable = paper.claim_comparable(tasks, "movement", "T5", "pruned with a teacher")
    taught = results.select(table, teacher="with")
    arms = ("fusion", "last", "bermo")
    return [*verdicts, results.judge(comparable, where, results.compare_by_seed, taught, *arms)]


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the metrics with and without a teacher, beside the paper's."""
    folders = results.with_settings(table, folder="distillation.teacher")["folder"]
    table = table.append_column("teacher", pc.if_else(pc.is_null(folders), "without", "with"))
    lines = ["task", "metric_name", "fusion"]
    means = mean_metrics(table, [*lines, "teacher"], paper.OTHER_METRICS)
    told = {
        (task, name, fusion, arm): value
        for arm, number in (("without", "T4"), ("with", "T5"))
        for (task, method, name, fusion), value in paper.published_metrics(number).items()
        if method == "movement"
    }
    label, note = "Pruned to 10 %, by teacher, %", paper.name_asked(session.options.tasks)
    figure = session.show_arms(means, label, lines, "teacher", told, note)
    verdicts = make_verdicts(session.where, table)
    session.publish({"trials": table, "means": means}, [figure], verdicts)


if __name__ == "__main__":
    run_study("distillation", Options, plan, report, teachers)
