"""Does a mix of all layers know more of a sentence than the last layer does?

BERMo §4.1, Tables 1 and 12: ten probing tasks ask a fine-tuned encoder for the surface, the syntax
and the meaning of a sentence. Over five seeds BERMo beats plain BERT on seven of the ten, by 2.67
points on the five semantic tasks and by 1.21 on all ten.

    python studies/probing.py                          # the embedded language, minutes, offline
    python studies/probing.py --paper --gpus           # SentEval on bert-base-uncased
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bermo_ray import Grid, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject
from bermo_ray.command_line.shell import Session, run_study

# Our tasks, and those of SentEval that ask the same.
SEMANTIC = {
    "tense": "senteval/past_present",
    "subject_number": "senteval/subj_number",
    "object_number": "senteval/obj_number",
    "odd_word_out": "senteval/odd_man_out",
    "coordination_inversion": "senteval/coordination_inversion",
}
OTHERS = ("sentence_length", "word_content", "tree_depth", "top_constituents", "bigram_shift")
PROBES = {name: f"senteval/{name}" for name in OTHERS} | SEMANTIC

ON_ALL, ON_SEMANTIC = (
    results.Claim(
        f"BERMo is better than BERT on the {tasks} probing tasks",
        source="BERMo, Table 1",
        quantity=f"on the {tasks} tasks BERMo is better than BERT by",
        published=published,
    )
    for tasks, published in (("ten", 1.21), ("semantic", 2.67))
)


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Ten probing tasks, plain BERT and BERMo."""

    DEFAULT = Subject(tuple(PROBES), seeds=(0, 1, 2, 3, 4))
    PAPER = Subject(tuple(PROBES.values()), ("bert-base-uncased",), seeds=(63, 77, 9, 96, 39))

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""


def plan(options: Options) -> Grid:
    """Every task with every fusion, fine-tuned with nothing pruned."""
    return options.make_grid(options.base_trials("dense", options.fusions))


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the accuracies on the test split, beside the paper's."""
    means = results.mean_over_seeds(table, ("task", "fusion"))
    told = results.published_values("bermo", "T1", ("task", "fusion"), quantity="accuracy")
    told |= {(ours, arm): told[PROBES[ours], arm] for ours in PROBES for arm in ("last", "bermo")}
    label = "Accuracy on the test split, %"
    figure = session.show_arms(means, label, ("task",), published=told)
    semantic = pc.is_in(table["task"], pa.array([*SEMANTIC, *SEMANTIC.values()]))
    arms = ("fusion", "last", "bermo")
    verdicts = [
        results.judge(claim, session.where, results.compare_by_seed, rows, *arms)
        for claim, rows in ((ON_ALL, table), (ON_SEMANTIC, table.filter(semantic)))
    ]
    session.publish({"trials": table, "means": means}, [figure], verdicts)


if __name__ == "__main__":
    run_study("probing", Options, plan, report)
