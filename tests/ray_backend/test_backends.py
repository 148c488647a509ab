"""The three ways to run the loop give the same numbers at world size 1."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.ray_backend import cluster
from bermo_ray.ray_backend.trials import (
    TrialConfig,
    decode_report,
    train_in_parallel,
    train_in_process,
)
from bermo_ray.training.reporter import Resources, run_locally
from bermo_ray.trial import L0, Data, Fusion, Optimizer, Trial

pytestmark = pytest.mark.ray


def test_in_process_and_torch_trainer_agree_with_no_ray_at_all(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import tune

    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=41),
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        pruning=L0(multiplier=5.0),
        optimizer=Optimizer(learning_rate=1e-3, score_learning_rate=0.2),
        epochs=2,
        batch_size=16,
    )
    expected = run_locally(trial)[-1]
    monkeypatch.setenv("RAY_ADDRESS", "local")
    joined = cluster.connect()

    def function(config: dict[str, Any]) -> None:
        settings = TrialConfig(Resources(), config["storage"])
        backends = {"train": train_in_parallel, "tune": train_in_process}
        backends[config["how"]]("00000", config["trial"], settings)

    needs = {"CPU": 0, "node:__internal_head__": 0.001}
    space = {
        "how": tune.grid_search(["tune", "train"]),
        "trial": trial.to_json(),
        "storage": tune.sample_from(lambda config: str(tmp_path / "of" / config["how"])),
    }
    try:
        results = tune.Tuner(
            tune.with_resources(function, needs),
            param_space=space,
            run_config=tune.RunConfig(name="n", storage_path=str(tmp_path), verbose=0),
        ).fit()
    finally:
        cluster.disconnect(joined)
    assert len(results) == 2
    for result in results:
        assert result.error is None
        report = decode_report(result.metrics)
        assert report is not None
        for name in (
            "metric", "loss", "train_loss", "remaining", "nonzero_parameters", "step", "status",
        ):  # fmt: skip
            how = result.config["how"]
            assert getattr(report, name) == getattr(expected, name), (how, name)
