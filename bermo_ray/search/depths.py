"""How many layers the model of a trial has, for plans that vary the number."""

from pathlib import Path

from bermo_ray.search.paper_settings import DEPTHS
from bermo_ray.trial import Trial


def find_depth(trial: Trial, paper: bool = False) -> int:
    """Layers of the model that training starts from.

    Args:
        trial: What is trained.
        paper: Whether it has an encoder of the papers, whose depth is known: it need not be on this
            machine then.

    Raises:
        UserError: There is no such encoder.
    """
    if paper and trial.warm_start is None:
        return DEPTHS[Path(trial.backbone).name]
    from bermo_ray.training.model import starting_depth

    return starting_depth(trial)
