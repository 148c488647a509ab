"""Which fusion of all layers keeps what the encoder learned in pretraining?

DWAtt §6.6, Table 3: the encoder goes on with masked language modelling, all weights trained, and
the model with the least validation loss is tested. DWAtt has a perplexity of 2.91 on WikiText-2,
all but that of the encoder as it is, 2.90; extra layers have 2.98, and Concat is worse with 3.44.
"The same" means here: within 5 %. The paper gives one run of each, which has no interval, and no
number of epochs; three stand in for it.

    python studies/mlm_fusion.py                       # the embedded language, minutes, offline
    python studies/mlm_fusion.py --paper --gpus        # WikiText-2 on roberta-large
"""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from bermo_ray import Grid, results
from bermo_ray.command_line.options import ManyTasksOptions, Subject
from bermo_ray.command_line.shell import Session, run_study

PERPLEXITY = "test_perplexity"  # among other_metrics
TOLD = results.published_values("dwatt", "T3", ("task", "fusion"))
TOLD |= {("masked_words", fusion): value for (_, fusion), value in list(TOLD.items())}
MARGIN = 0.05  # how far from 1 the ratio of two perplexities that are the same may be

make_claim = partial(results.Claim, source="DWAtt, Table 3", unit="×", no_effect=1.0)
# By the fusion that is compared with and the one that is compared.
CLAIMS = {
    ("last", "dwatt"): make_claim(
        "DWAtt stays with the encoder as it is",
        quantity="against the encoder as it is, DWAtt's perplexity is",
        published=TOLD["wikitext2", "dwatt"] / TOLD["wikitext2", "last"],
        expects="same",
        margin=MARGIN,
    ),
    ("extra_layers", "dwatt"): make_claim(
        "DWAtt has a lower perplexity than extra layers",
        quantity="against extra layers, DWAtt's perplexity is",
        published=TOLD["wikitext2", "dwatt"] / TOLD["wikitext2", "extra_layers"],
        expects="less",
    ),
    ("last", "concat"): make_claim(
        "Concat is worse than the encoder as it is",
        quantity="against the encoder as it is, Concat's perplexity is",
        published=TOLD["wikitext2", "concat"] / TOLD["wikitext2", "last"],
    ),
}


@dataclass(frozen=True)
class Options(ManyTasksOptions):
    """Masked words: the encoder as it is, extra layers, Concat and DWAtt, all weights trained."""

    DEFAULT = Subject(("masked_words",), seeds=(0, 1, 2))
    PAPER = Subject(("wikitext2",), ("roberta-large",), seeds=(0,))

    fusions: tuple[str, ...] = ("last", "extra_layers", "concat", "dwatt")
    """What is compared; last is the encoder as it is."""


def plan(options: Options) -> Grid:
    """Every fusion, fine-tuned; the least loss on dev says which model is tested."""
    return options.make_grid(options.base_trials("masked", options.fusions))


def report(session: Session[Options], table: pa.Table) -> None:
    """Prints, draws and keeps the perplexities, beside the paper's."""
    table = results.with_metric(table, PERPLEXITY)
    means = results.mean_over_seeds(table, ("task", "fusion"), PERPLEXITY)
    told, note = {(f, t): value for (t, f), value in TOLD.items()}, " (paper: WikiText-2)"
    figure = session.show_arms(means, "Test perplexity", ("fusion",), "task", told, note, scale=1)
    values = {
        fusion: results.values_by_seed(results.select(table, fusion=fusion), PERPLEXITY)
        for fusion in session.options.fusions
    }
    verdicts = [
        results.judge(
            claim, session.where, results.compare_ratio, *(values.get(a, {}) for a in arms)
        )
        for arms, claim in CLAIMS.items()
    ]
    session.publish({"trials": table, "means": means}, [figure], verdicts)


if __name__ == "__main__":
    run_study("mlm_fusion", Options, plan, report)
