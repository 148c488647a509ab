"""The three ways to run the loop give the same numbers at world size 1."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.training.trainer import Resources, data_parallel, in_process, run_locally
from bermo_ray.trial import Data, Fusion, Optimizer, Pruning, Trial

pytestmark = pytest.mark.slow


def test_in_process_and_torch_trainer_agree_with_no_ray_at_all(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray import tune

    from bermo_ray.search import cluster

    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=41),
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        pruning=Pruning(final_lambda=5.0),
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=0.2),
        epochs=2,
        batch_size=16,
    )
    expected = run_locally(trial)[-1]
    monkeypatch.setenv("RAY_ADDRESS", "local")
    cluster.connect()

    def function(config: dict[str, Any]) -> None:
        resources = Resources()
        if config["how"] == "train":
            data_parallel(config["trial"], resources, config["storage"])
        else:
            in_process(Trial.from_json(config["trial"]), resources)

    needs = {"CPU": 0, "node:__internal_head__": 0.001}
    space = {
        "how": tune.grid_search(["tune", "train"]),
        "trial": trial.to_json(),
        "storage": str(tmp_path / "train"),
    }
    try:
        found = tune.Tuner(
            tune.with_resources(function, needs),
            param_space=space,
            run_config=tune.RunConfig(name="n", storage_path=str(tmp_path), verbose=0),
        ).fit()
    finally:
        ray.shutdown()
    assert len(found) == 2
    for result in found:
        assert result.error is None
        for key in ("metric", "loss", "train_loss", "remaining", "nonzero", "step", "status"):
            assert result.metrics[key] == expected[key], (result.config["how"], key)
