"""How small can L0 pruning make BERT, and does BERMo's mix of all layers help?

BERMo §4.2.3: λ, the learning rate and the scores' learning rate of L0 pruning decide both the
remaining weights and the accuracy. For plain BERT (`last`) and for BERMo, Optuna searches the
three, once for each seed; the trials that no other beats on both counts are the frontier. They are
chosen on one half of the dev set and reported on the other, or on the test split. With a target the
search looks for one point: the fewest weights that keep the accuracy. The paper finds that on QQP
BERMo needs 1.40 times fewer weights than BERT for the same accuracy.

    python studies/l0_frontier.py                      # the embedded language, minutes, offline
    python studies/l0_frontier.py --task qqp --backbone bert-base-uncased --workers 4 --gpus
    python studies/l0_frontier.py --levels 0.9 0.95    # compare where both keep so much of dense
    python studies/l0_frontier.py --target 0.99x       # of the dense baseline
    python studies/l0_frontier.py --paper --gpus       # Table 9's settings on QQP
"""

from dataclasses import dataclass
from functools import partial

from bermo_ray.command_line.frontier_study import FrontierOptions, plan_frontier, report_frontier
from bermo_ray.command_line.shell import run_study


@dataclass(frozen=True)
class Options(FrontierOptions):
    """L0 pruning of plain BERT and BERMo: remaining weights against accuracy."""


plan = partial(plan_frontier, method="l0")

if __name__ == "__main__":
    run_study("l0_frontier", Options, plan, report_frontier)
