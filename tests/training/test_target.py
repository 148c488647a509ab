"""A density asked for is a density reached, or said to be missed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bermo_ray.training.loop import Report, train
from bermo_ray.training.trainer import LocalReporter, run_locally
from bermo_ray.trial import Data, Optimizer, Pruning, Trial


def trial(backbone: str, method: str, target: float, mask_rate: float) -> Trial:
    tau = {} if method == "l0" else {"initial_threshold": 0.1, "final_threshold": 0.1}
    return Trial(
        data=Data(task="tense", train_rows=256, dev_rows=40),
        backbone=backbone,
        pruning=Pruning(method=method, target=target, final_warmup=2, **tau),
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=mask_rate),
        epochs=8,
        batch_size=16,
    )


@pytest.mark.parametrize("target", [0.5, 0.2, 0.1, 0.05])
@pytest.mark.parametrize("method", ["l0", "soft_movement"])
def test_one_run_lands_within_half_a_point(tiny: str, method: str, target: float) -> None:
    last = run_locally(trial(tiny, method, target, mask_rate=0.15))[-1]
    assert last["density"] == pytest.approx(target, abs=0.005)
    assert "missed" not in last["reason"]
    assert last["lambda"] != 0


def test_a_target_out_of_reach_is_said_to_be_missed(tiny: str) -> None:
    # 128 steps at this rate move a score by 0.13 at most; to close a mask takes 4.6.
    last = run_locally(trial(tiny, "l0", 0.1, mask_rate=1e-3))[-1]
    assert last["density"] == 1.0
    assert "density 1.0000 missed its target 0.1" in last["reason"]


class Stop(Exception):
    """The run is cut off."""


class Breaking(LocalReporter):
    def report(self, metrics: Report, save: Callable[[Path], None] | None) -> None:
        super().report(metrics, save)
        if metrics["epoch"] == 2:
            raise Stop


def test_a_resumed_run_goes_on_with_its_multipliers(tiny: str, tmp_path: Path) -> None:
    whole = trial(tiny, "l0", 0.2, mask_rate=0.15).replace(epochs=4)
    straight = run_locally(whole)
    with pytest.raises(Stop):
        train(whole, Breaking(tmp_path / "c"))
    resumed = run_locally(whole, tmp_path / "c")
    for key in ("density", "metric", "loss", "lambda"):
        assert resumed[-1][key] == straight[-1][key]
