"""Studies that make BERT-like encoders smaller, distributed by Ray.

What is listed here is imported when it is first used, so that reading results loads neither Ray nor
torch.
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bermo_ray.pruning.trainer_callback import PruningCallback
    from bermo_ray.results import frontier, load, load_all, query
    from bermo_ray.results.study_results import Frontier, Results
    from bermo_ray.search.grid import Grid
    from bermo_ray.study import Study
    from bermo_ray.tracking.store import Store
    from bermo_ray.training.reporter import Resources
    from bermo_ray.training.result import TrialResult, run
    from bermo_ray.trial import (
        L0,
        Data,
        Distillation,
        Fusion,
        LayerDrop,
        Magnitude,
        Movement,
        Optimizer,
        SoftMovement,
        Trial,
    )

_HOMES = {
    "bermo_ray.trial": (
        "Trial", "Data", "Fusion", "LayerDrop", "Magnitude", "Movement", "SoftMovement", "L0",
        "Distillation", "Optimizer",
    ),
    "bermo_ray.training.reporter": ("Resources",),
    "bermo_ray.training.result": ("TrialResult", "run"),
    "bermo_ray.pruning.trainer_callback": ("PruningCallback",),
    "bermo_ray.search.grid": ("Grid",),
    "bermo_ray.tracking.store": ("Store",),
    "bermo_ray.results": ("load", "load_all", "frontier", "query"),
    "bermo_ray.results.study_results": ("Frontier", "Results"),
    "bermo_ray.study": ("Study",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = version("bermo-ray")
__all__ = [
    "L0",
    "Data",
    "Distillation",
    "Frontier",
    "Fusion",
    "Grid",
    "LayerDrop",
    "Magnitude",
    "Movement",
    "Optimizer",
    "PruningCallback",
    "Resources",
    "Results",
    "SoftMovement",
    "Store",
    "Study",
    "Trial",
    "TrialResult",
    "frontier",
    "load",
    "load_all",
    "query",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
