import numpy as np
import torch

from bermo_ray.training.batches import epoch_batches, evaluation_steps, steps_per_epoch
from bermo_ray.training.setup import set_up
from tests.support.runs import small_trial


def test_batches_hold_every_row_once_and_change_by_epoch(tiny: str) -> None:
    trial = small_trial(tiny, data={"train_rows": 70})
    data = set_up(trial, 1, torch.device("cpu")).data["train"]
    first, again, second = (epoch_batches(data, trial, epoch) for epoch in (0, 0, 1))
    assert sorted(np.concatenate(first).tolist()) == list(range(70))
    assert [b.tolist() for b in first] == [b.tolist() for b in again]
    assert [b.tolist() for b in first] != [b.tolist() for b in second]
    assert len(first) == steps_per_epoch(70, 16) == 5
    # Of 65 rows in batches of 16, the last can't be shared by two workers: never used.
    assert steps_per_epoch(65, 16, world_size=2) == 4
    odd_rows = set_up(small_trial(tiny, data={"train_rows": 65}), 2, torch.device("cpu")).data[
        "train"
    ]
    for epoch in range(20):
        batches = epoch_batches(odd_rows, trial, epoch, world_size=2)
        assert [len(batch) for batch in batches] == [16] * 4


def test_evaluations_are_spread_over_each_epoch_and_meet_its_end(tiny: str) -> None:
    trial = small_trial(tiny, evaluations_per_epoch=3)
    assert evaluation_steps(trial, 10) == {4, 7, 10, 14, 17, 20}
    assert evaluation_steps(trial, 2) == {1, 2, 3, 4}
