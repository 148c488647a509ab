"""Settings to start from, by encoder and question: where a study looks if nothing else is said."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bermo_ray.errors import UserError, unknown

Range = tuple[float, float]


@dataclass(frozen=True)
class Recommended:
    """How long to train and at which rates; ranges are for searches, on log scales."""

    epochs: int
    batch_size: int
    learning_rate: float | None = None
    score_learning_rate: float | None = None
    learning_rates: Range | None = None
    score_learning_rates: Range | None = None
    multipliers: Range | None = None
    multipliers_by_fusion: Mapping[str, Range] = field(default_factory=dict)


# The shipped encoder has minutes: few steps, so large rates. Pretrained encoders of any size get
# the surroundings of the papers' settings (BERMo, Table 9: λ 45–175, rate 3e-5, score rate
# 1e-2–1e-1, 6–10 epochs; layer dropping: three epochs of batches of 32). On the shipped encoder
# BERMo loses about as many weights at a quarter of plain BERT's λ: each layer has but a share of
# the mix, so that the task's gradient has less to set against the penalty's.
_EMBEDDED = {
    "l0": Recommended(
        4, 16, learning_rates=(1e-3, 1.8e-3), score_learning_rates=(8e-2, 1.4e-1),
        multipliers=(5.0, 50.0), multipliers_by_fusion={"bermo": (1.2, 12.0)},
    ),
    "soft_movement": Recommended(
        3, 16, learning_rates=(3e-4, 1.5e-3), score_learning_rates=(2e-2, 2e-1),
        multipliers=(1.0, 100.0),
    ),
    "layer_drop": Recommended(3, 16, learning_rate=6.7e-4),
    "drop_and_prune": Recommended(5, 16, learning_rate=1e-3, score_learning_rate=0.15),
}  # fmt: skip
_PRETRAINED = {
    "l0": Recommended(
        6, 32, learning_rates=(1e-5, 1e-4), score_learning_rates=(3e-3, 2e-1),
        multipliers=(10.0, 500.0),
    ),
    "soft_movement": Recommended(
        6, 32, learning_rates=(1e-5, 1e-4), score_learning_rates=(3e-3, 2e-1),
        multipliers=(10.0, 1000.0),
    ),
    "layer_drop": Recommended(3, 32, learning_rate=2e-5),
    "drop_and_prune": Recommended(6, 32, learning_rate=3e-5, score_learning_rate=1e-2),
}  # fmt: skip


def recommend(question: str, backbone: str) -> Recommended:
    """The settings for a question (``l0``, ``soft_movement``, ``layer_drop``, ``drop_and_prune``)
    on that encoder.

    >>> recommend("layer_drop", "bert-base-uncased").learning_rate
    2e-05

    Raises:
        UserError: nothing is recommended for it.
    """
    table = _EMBEDDED if backbone == "embedded" else _PRETRAINED
    if question not in table:
        raise UserError(unknown("question", question, table))
    return table[question]
