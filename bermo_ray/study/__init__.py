"""What a script in ``studies/`` needs: options, the engine, and how to call both."""

from bermo_ray.study.engine import Study, command
from bermo_ray.study.frontiers import FrontierOptions, Setting, conclude, search
from bermo_ray.study.options import (
    ManyTasks,
    OneTask,
    StudyOptions,
    by_backbone,
    parse,
)

__all__ = [
    "FrontierOptions",
    "ManyTasks",
    "OneTask",
    "Setting",
    "Study",
    "StudyOptions",
    "by_backbone",
    "command",
    "conclude",
    "parse",
    "search",
]
