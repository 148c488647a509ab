"""Which rows of its splits a trial takes, once they are encoded."""

import numpy as np

from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.task import Split, Task
from bermo_ray.trial import Trial


def row_numbers(trial: Trial, task: Task, split: Split) -> np.ndarray:
    """Of each encoded row that the trial takes of a split, the number of the row it is made of.

    Raises:
        MissingPartError: the split can't be had.
    """
    if task.keeps_row_count:
        return np.arange(task.take_rows(trial.data, split, trial.seed).num_rows)
    tokenizer = load_tokenizer(trial.backbone)
    return encode_split(task, trial.data, split, trial.seed, tokenizer).row_numbers
