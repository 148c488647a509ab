"""Head kinds: what a task's answers look like, from its rows to its loss and predictions."""

from bermo_ray.tasks.heads.base import HeadKind, Logits
from bermo_ray.tasks.heads.classification import CLASSIFICATION
from bermo_ray.tasks.heads.masked import MASKED
from bermo_ray.tasks.heads.regression import REGRESSION
from bermo_ray.tasks.heads.span import SPAN
from bermo_ray.tasks.heads.tagging import TAGGING

HEADS: dict[str, HeadKind] = {
    head.name: head for head in (CLASSIFICATION, REGRESSION, TAGGING, SPAN, MASKED)
}

__all__ = [
    "CLASSIFICATION",
    "HEADS",
    "MASKED",
    "REGRESSION",
    "SPAN",
    "TAGGING",
    "HeadKind",
    "Logits",
]
