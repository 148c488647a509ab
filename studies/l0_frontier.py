"""How small can L0 pruning make BERT, and does BERMo's mix of all layers help?

BERMo §4.2.3: λ, the learning rate and the mask rate of L0 pruning decide both the remaining
weights and the accuracy. For plain BERT (`last`) and for BERMo, Optuna searches the three; the
trials that no other beats on both counts are the parameter-efficiency frontier. With a target the
search looks for one point of it: the fewest weights that keep the accuracy.

    python studies/l0_frontier.py                      # the embedded language, minutes, offline
    python studies/l0_frontier.py --task qqp --backbone bert-base-uncased --workers 4 --gpus
    python studies/l0_frontier.py --target 0.99x --seeds 0 1 2   # of the dense baseline
    python studies/l0_frontier.py --match last         # BERMo at the accuracy that BERT reached
"""

from dataclasses import dataclass

import pyarrow as pa

from bermo_ray.search.plan import Plan
from bermo_ray.study import FrontierOptions, Setting, Study, command, conclude, parse, search
from bermo_ray.trial import Pruning

# The shipped encoder has minutes: few steps, so large rates. Pretrained encoders of any size get
# the surroundings of the paper's Table 9 (λ 45–175, rate 3e-5, mask rate 1e-2–1e-1, 6–10 epochs).
EMBEDDED = Setting(
    epochs=3,
    batch_size=16,
    lambdas=(1.0, 40.0),
    learning_rates=(3e-4, 1.5e-3),
    mask_rates=(4e-2, 1.2e-1),
)
PRETRAINED = Setting(
    epochs=6,
    batch_size=32,
    lambdas=(10.0, 500.0),
    learning_rates=(1e-5, 1e-4),
    mask_rates=(3e-3, 2e-1),
)


@dataclass(frozen=True)
class Options(FrontierOptions):
    """L0 pruning of plain BERT and BERMo: remaining weights against accuracy."""


def plan(options: Options) -> Plan:
    """Dense baselines, then λ and rates of each fusion: the frontier, or a target on it."""
    usual = EMBEDDED if options.backbone == "embedded" else PRETRAINED
    return search(options, Pruning(method="l0"), usual)


def run(options: Options) -> pa.Table:
    """Runs the search; prints, draws and keeps the frontier, and gives it as an Arrow table."""
    study = Study("l0_frontier", options, plan)
    return conclude(study, study.run())


if __name__ == "__main__":
    command(lambda: run(parse(Options)))()
