"""How small can L0 pruning make BERT, and does BERMo's mix of all layers help?

BERMo §4.2.3: λ, the learning rate and the mask rate of L0 pruning decide both the remaining
weights and the accuracy. For plain BERT (`last`) and for BERMo, Optuna searches the three; the
trials that no other beats on both counts are the parameter-efficiency frontier.

    python studies/l0_frontier.py                      # the embedded language, minutes, offline
    python studies/l0_frontier.py --task qqp --backbone bert-base-uncased --workers 4 --gpus
"""

from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa

from bermo_ray.results import figures, frontier, text
from bermo_ray.search.arms import FrontierSearch
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.study import OneTask, Study, by_backbone, command, parse
from bermo_ray.tasks import registry
from bermo_ray.trial import Pruning

Range = tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """Where the search looks."""

    epochs: int
    batch_size: int
    lambdas: Range
    learning_rates: Range
    mask_rates: Range


# The shipped encoder has minutes: few steps, so large rates. Pretrained encoders of any size get
# the surroundings of the paper's Table 9 (λ 45–175, rate 3e-5, mask rate 1e-2–1e-1, 6–10 epochs).
EMBEDDED = Setting(3, 16, (1.0, 40.0), (3e-4, 1.5e-3), (4e-2, 1.2e-1))
PRETRAINED = Setting(6, 32, (10.0, 500.0), (1e-5, 1e-4), (3e-3, 2e-1))


@dataclass(frozen=True)
class Options(OneTask):
    """L0 pruning of plain BERT and BERMo: remaining weights against accuracy."""

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""
    trials: int = 8
    """Trials for each fusion."""
    lambdas: Annotated[Range | None, by_backbone] = None
    """Range of λ, the multiplier of the L0 penalty (log scale)."""
    learning_rates: Annotated[Range | None, by_backbone] = None
    """Range of the weights' learning rate (log scale)."""
    mask_rates: Annotated[Range | None, by_backbone] = None
    """Range of the scores' and fusion scalars' rate (log scale)."""


def plan(options: Options) -> FrontierSearch:
    """An arm for each fusion, and each fusion's dense baseline to compare with."""
    usual = EMBEDDED if options.backbone == "embedded" else PRETRAINED
    learning_rates = LogUniform(*(options.learning_rates or usual.learning_rates))
    base = options.trial(usual.epochs, usual.batch_size).replace(
        pruning=Pruning(method="l0"), optimizer__learning_rate=learning_rates.quantile(0.5)
    )
    arms = {fusion: base.replace(fusion__name=fusion) for fusion in options.fusions}
    space = Space(
        arms=arms,
        ranges={
            "pruning__final_lambda": LogUniform(*(options.lambdas or usual.lambdas)),
            "optimizer__learning_rate": learning_rates,
            "optimizer__mask_rate": LogUniform(*(options.mask_rates or usual.mask_rates)),
        },
        spread="pruning__final_lambda",
        fixed=tuple(arm.replace(pruning=None) for arm in arms.values()),
    )
    return FrontierSearch(space, options.trials, options.seeds)


def run(options: Options) -> pa.Table:
    """Runs the search; prints, draws and keeps the frontier, and gives it as an Arrow table."""
    study = Study("l0_frontier", options, plan)
    table = study.run()
    front = frontier(table)
    metric = registry.get(study.options.task).metric
    study.console.print(text.frontier_table(front, metric))
    figure = figures.frontier_figure(table, front, metric, study.folder / "frontier.png")
    study.publish({"trials": table, "frontier": front}, [figure])
    return front


if __name__ == "__main__":
    command(lambda: run(parse(Options)))()
