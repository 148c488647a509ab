"""Settings to start from, by encoder and question: where a study looks if nothing else is said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bermo_ray.errors import UserError, unknown
from bermo_ray.trial import Trial

Range = tuple[float, float]


@dataclass(frozen=True)
class Recommended:
    """How long to train and at which rates; ranges are for searches, on log scales. ``settings``
    are further ones, by the keys of :meth:`Trial.replace`; ``settings_by_fusion`` those that a
    fusion has instead."""

    epochs: int
    batch_size: int
    learning_rate: float | None = None
    score_learning_rate: float | None = None
    learning_rates: Range | None = None
    score_learning_rates: Range | None = None
    multipliers: Range | None = None
    multipliers_by_fusion: Mapping[str, Range] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_by_fusion: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# The shipped encoder has minutes: few steps, so large rates. Pretrained encoders of any size get
# the surroundings of the papers' settings (BERMo, Table 9: λ 45–175, rate 3e-5, score rate
# 1e-2–1e-1, 6–10 epochs; layer dropping: three epochs of batches of 32). On the shipped encoder
# BERMo loses about as many weights at a quarter of plain BERT's λ: each layer has but a share of
# the mix, so that the task's gradient has less to set against the penalty's. The single λ of `l0`
# and `soft_movement` were looked for by hand, where both fusions keep 20 to 35 % of the weights and
# most of the accuracy on `tense`.
_EMBEDDED = {
    "dense": Recommended(3, 16, learning_rate=6.7e-4),
    "movement": Recommended(
        4, 16, learning_rate=1e-3, score_learning_rate=1e-2,
        settings={"pruning": {"method": "movement"}},
    ),
    "magnitude": Recommended(
        4, 16, learning_rate=1e-3, settings={"pruning": {"method": "magnitude"}}
    ),
    "l0": Recommended(
        4, 16, learning_rate=1.3e-3, score_learning_rate=1e-1,
        learning_rates=(1e-3, 1.8e-3), score_learning_rates=(8e-2, 1.4e-1),
        multipliers=(5.0, 50.0), multipliers_by_fusion={"bermo": (1.2, 12.0)},
        settings={"pruning": {"method": "l0", "multiplier": 30.0}},
        settings_by_fusion={"bermo": {"pruning.multiplier": 6.0}},
    ),
    "soft_movement": Recommended(
        4, 16, learning_rate=1e-3, score_learning_rate=1.5e-1,
        learning_rates=(3e-4, 1.5e-3), score_learning_rates=(2e-2, 2e-1),
        multipliers=(1.0, 100.0),
        settings={"pruning": {"method": "soft_movement", "multiplier": 80.0}},
        settings_by_fusion={"bermo": {"pruning.multiplier": 40.0}},
    ),
    "few_shot": Recommended(
        25, 16, learning_rate=1e-3, settings={"mode": "features", "final_checkpoint": "best"}
    ),
    "masked": Recommended(
        4, 16, learning_rate=3e-4, settings={"final_checkpoint": "best_loss"}
    ),
    "layer_drop": Recommended(3, 16, learning_rate=6.7e-4),
    "target_density": Recommended(5, 16, learning_rate=1e-3, score_learning_rate=0.15),
}  # fmt: skip
_PRETRAINED = {
    "dense": Recommended(3, 32, learning_rate=3e-5),
    "movement": Recommended(
        6, 32, learning_rate=3e-5, score_learning_rate=1e-2,
        settings={"pruning": {"method": "movement"}},
    ),
    "magnitude": Recommended(
        6, 32, learning_rate=3e-5, settings={"pruning": {"method": "magnitude"}}
    ),
    "l0": Recommended(
        6, 32, learning_rate=3e-5, score_learning_rate=1e-2,
        learning_rates=(1e-5, 1e-4), score_learning_rates=(3e-3, 2e-1),
        multipliers=(10.0, 500.0), settings={"pruning": {"method": "l0", "multiplier": 50.0}},
    ),
    "soft_movement": Recommended(
        6, 32, learning_rate=3e-5, score_learning_rate=1e-2,
        learning_rates=(1e-5, 1e-4), score_learning_rates=(3e-3, 2e-1),
        multipliers=(10.0, 1000.0),
        settings={"pruning": {"method": "soft_movement", "multiplier": 150.0}},
    ),
    "few_shot": Recommended(
        50, 16, learning_rate=5e-5, settings={"mode": "features", "final_checkpoint": "best"}
    ),
    "masked": Recommended(
        3, 8, learning_rate=5e-5, settings={"final_checkpoint": "best_loss"}
    ),
    "layer_drop": Recommended(3, 32, learning_rate=2e-5),
    "target_density": Recommended(6, 32, learning_rate=3e-5, score_learning_rate=1e-2),
}  # fmt: skip


def recommend(question: str, backbone: str) -> Recommended:
    """The settings for a question (``dense``, ``l0``, ``movement``, ``few_shot``, ``layer_drop``,
    …) on that encoder.

    >>> recommend("layer_drop", "bert-base-uncased").learning_rate
    2e-05

    Raises:
        UserError: nothing is recommended for it.
    """
    table = _EMBEDDED if backbone == "embedded" else _PRETRAINED
    if question not in table:
        raise UserError(unknown("question", question, table))
    return table[question]


def recommended_trial(question: str, backbone: str, fusion: str = "last") -> Trial:
    """:func:`recommend`'s settings for that fusion as a Trial; its task, encoder, fusion and seed
    are open.

    >>> recommended_trial("movement", "embedded").pruning.method
    'movement'
    """
    settings = recommend(question, backbone)
    rates = {
        f"optimizer.{name}": getattr(settings, name)
        for name in ("learning_rate", "score_learning_rate")
        if getattr(settings, name) is not None
    }
    trial = Trial().replace(
        {**rates, **settings.settings}, epochs=settings.epochs, batch_size=settings.batch_size
    )
    return trial.replace(settings.settings_by_fusion.get(fusion, {}))
