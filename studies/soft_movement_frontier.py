"""How small can soft movement pruning make BERT, and does BERMo's mix of all layers help?

BERMo §4.2.3, soft movement: a weight stays while σ(S) > τ, and λ pushes the scores S down. As with
L0, λ and the rates decide remaining weights and accuracy, and nobody knows beforehand which λ gives
which: Optuna searches the three for plain BERT (`last`) and for BERMo. The paper finds that on QQP
BERMo needs 1.29 times fewer weights than BERT for the same accuracy.

    python studies/soft_movement_frontier.py           # the embedded language, minutes, offline
    python studies/soft_movement_frontier.py --task qqp --backbone bert-base-uncased --gpus
    python studies/soft_movement_frontier.py --target 0.99x
    python studies/soft_movement_frontier.py --paper --gpus  # Table 10's settings on QQP
"""

from dataclasses import dataclass
from functools import partial

from bermo_ray.command_line.frontier_study import FrontierOptions, plan_frontier, report_frontier
from bermo_ray.command_line.shell import run_study


@dataclass(frozen=True)
class Options(FrontierOptions):
    """Soft movement pruning of plain BERT and BERMo: remaining weights against accuracy."""


plan = partial(plan_frontier, method="soft_movement")

if __name__ == "__main__":
    run_study("soft_movement_frontier", Options, plan, report_frontier)
