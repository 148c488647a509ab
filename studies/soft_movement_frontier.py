"""How small can soft movement pruning make BERT, and does BERMo's mix of all layers help?

BERMo §4.2.3, soft movement: a weight stays while σ(S) > τ, and λ pushes the scores S down. As with
L0, λ and the rates decide remaining weights and accuracy, and nobody knows beforehand which λ gives
which: Optuna searches the three for plain BERT (`last`) and for BERMo.

    python studies/soft_movement_frontier.py           # the embedded language, minutes, offline
    python studies/soft_movement_frontier.py --task qqp --backbone bert-base-uncased --gpus
    python studies/soft_movement_frontier.py --target 0.99x --seeds 0 1 2
"""

from dataclasses import dataclass

import pyarrow as pa

from bermo_ray.search.plan import Plan
from bermo_ray.study import FrontierOptions, Setting, Study, command, conclude, parse, search
from bermo_ray.trial import Pruning

TAU = 0.1  # of the paper's Table 10; it rises from 0 along the schedule

# As in l0_frontier.py: the shipped encoder has few steps, so large rates.
EMBEDDED = Setting(
    epochs=3,
    batch_size=16,
    lambdas=(1.0, 100.0),
    learning_rates=(3e-4, 1.5e-3),
    mask_rates=(2e-2, 2e-1),
)
PRETRAINED = Setting(
    epochs=6,
    batch_size=32,
    lambdas=(10.0, 1000.0),
    learning_rates=(1e-5, 1e-4),
    mask_rates=(3e-3, 2e-1),
)


@dataclass(frozen=True)
class Options(FrontierOptions):
    """Soft movement pruning of plain BERT and BERMo: remaining weights against accuracy."""


def plan(options: Options) -> Plan:
    """Dense baselines, then λ and rates of each fusion: the frontier, or a target on it."""
    usual = EMBEDDED if options.backbone == "embedded" else PRETRAINED
    pruning = Pruning(method="soft_movement", initial_threshold=0.0, final_threshold=TAU)
    return search(options, pruning, usual)


def run(options: Options) -> pa.Table:
    """Runs the search; prints, draws and keeps the frontier, and gives it as an Arrow table."""
    study = Study("soft_movement_frontier", options, plan)
    return conclude(study, study.run())


if __name__ == "__main__":
    command(lambda: run(parse(Options)))()
