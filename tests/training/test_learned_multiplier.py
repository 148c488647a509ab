"""A density asked for is a density reached, or said to be missed."""

from pathlib import Path

import pytest

from bermo_ray.training.loop import train
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial
from tests.support.pruners import penalized
from tests.support.runs import Interrupted, InterruptingReporter


def targeting(backbone: str, method: str, density: float, score_learning_rate: float) -> Trial:
    return Trial(
        data=Data(task="tense", train_rows=256, dev_rows=40),
        backbone=backbone,
        pruning=penalized(method, target_density=density, flat_end=2),
        optimizer=Optimizer(learning_rate=1e-3, score_learning_rate=score_learning_rate),
        epochs=8,
        batch_size=16,
    )


@pytest.mark.parametrize("density", [0.5, 0.2, 0.1, 0.05])
@pytest.mark.parametrize("method", ["l0", "soft_movement"])
def test_one_run_lands_within_half_a_point(tiny: str, method: str, density: float) -> None:
    last = run_locally(targeting(tiny, method, density, score_learning_rate=0.15))[-1]
    assert last.density == pytest.approx(density, abs=0.005)
    assert "missed" not in last.reason
    assert last.multiplier_now != 0
    # What the multipliers reached by themselves; the shift closed the rest of the gap. With eight
    # seeds it was 0.38 to 0.63 where 0.5 was asked for: so few steps leave that much to noise.
    assert last.density_before_shift == pytest.approx(density, abs=0.15)
    assert last.density_before_shift != last.density


def test_a_target_out_of_reach_is_said_to_be_missed(tiny: str) -> None:
    # 128 steps at this rate move a score by 0.13 at most; to close a mask takes 4.6.
    last = run_locally(targeting(tiny, "l0", 0.1, score_learning_rate=1e-3))[-1]
    assert last.density == 1.0
    assert "density 1.0000 missed its target 0.1" in last.reason


def test_a_resumed_run_goes_on_with_its_multipliers(tiny: str, tmp_path: Path) -> None:
    trial = targeting(tiny, "l0", 0.2, score_learning_rate=0.15).replace(epochs=4)
    straight = run_locally(trial)[-1]
    with pytest.raises(Interrupted):
        train(trial, InterruptingReporter(tmp_path / "c", stop_at=32))  # after two epochs
    resumed = run_locally(trial, tmp_path / "c")[-1]
    names = ("density", "density_before_shift", "metric", "loss", "multiplier_now")
    for name in names:
        assert getattr(resumed, name) == getattr(straight, name)


def test_a_run_resumed_after_the_first_shift_knows_the_density_before_it(
    tiny: str, tmp_path: Path
) -> None:
    trial = targeting(tiny, "l0", 0.2, score_learning_rate=0.15).replace(
        epochs=4, evaluations_per_epoch=4
    )
    # 64 steps, of which 6 warm up: the flat end is the last 12.
    straight = run_locally(trial)[-1]
    with pytest.raises(Interrupted):
        train(trial, InterruptingReporter(tmp_path / "c", stop_at=56))
    resumed = run_locally(trial, tmp_path / "c")[-1]
    assert resumed.density_before_shift == straight.density_before_shift
    assert 0 < straight.density_before_shift < 1


def test_a_density_that_was_not_asked_for_is_not_shifted(tiny: str) -> None:
    trial = targeting(tiny, "l0", 0.2, score_learning_rate=0.15).replace(epochs=2)
    fixed = trial.replace(pruning=penalized("l0", multiplier=10.0))
    assert not run_locally(fixed)[-1].finite("density_before_shift")
