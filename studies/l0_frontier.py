"""How small can L0 pruning make BERT, and does BERMo's mix of all layers help?

BERMo §4.2.3: λ, the learning rate and the mask rate of L0 pruning decide both the remaining
weights and the accuracy. For plain BERT (`last`) and for BERMo, Optuna searches the three; the
trials that no other beats on both counts are the parameter-efficiency frontier.

    python studies/l0_frontier.py                      # the embedded language, minutes, offline
    python studies/l0_frontier.py --task qqp --backbone bert-base-uncased --workers 4 --gpus
"""

from dataclasses import dataclass

from bermo_ray.results import figures, frontier, text
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.study import Study, StudyOptions, command, parse
from bermo_ray.tasks import registry
from bermo_ray.trial import Pruning


@dataclass(frozen=True)
class Options(StudyOptions):
    """L0 pruning of plain BERT and BERMo: remaining weights against accuracy."""

    fusions: tuple[str, ...] = ("last", "bermo")
    """What is compared."""
    lambdas: tuple[float, float] = (1.0, 100.0)
    """Range of λ, the multiplier of the L0 penalty (log scale)."""
    learning_rates: tuple[float, float] = (2e-4, 2e-3)
    """Range of the weights' learning rate (log scale)."""
    mask_rates: tuple[float, float] = (2e-2, 2e-1)
    """Range of the scores' and fusion scalars' rate (log scale)."""


def space(options: Options) -> Space:
    """An arm for each fusion, and each fusion's dense baseline to compare with."""
    base = options.trial().replace(
        pruning=Pruning(method="l0"),
        optimizer__learning_rate=LogUniform(*options.learning_rates).quantile(0.5),
    )
    arms = {fusion: base.replace(fusion__name=fusion) for fusion in options.fusions}
    return Space(
        arms=arms,
        ranges={
            "pruning__final_lambda": LogUniform(*options.lambdas),
            "optimizer__learning_rate": LogUniform(*options.learning_rates),
            "optimizer__mask_rate": LogUniform(*options.mask_rates),
        },
        spread="pruning__final_lambda",
        fixed=tuple(arm.replace(pruning=None) for arm in arms.values()),
    )


@command
def main() -> None:
    """Runs the search, then prints, draws and keeps the frontier."""
    study = Study("l0_frontier", parse(Options), space)
    table = study.run()
    front = frontier(table)
    metric = registry.get(study.options.task).metric
    study.console.print(text.frontier_table(front, metric))
    figure = figures.frontier_figure(table, front, metric, study.folder / "frontier.png")
    study.publish({"trials": table, "frontier": front}, [figure])


if __name__ == "__main__":
    main()
