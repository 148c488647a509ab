"""Two real processes over gloo, without Ray."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bermo_ray.training.loop import prepare, train
from bermo_ray.training.trainer import LocalReporter, run_locally
from bermo_ray.trial import Data, Fusion, Optimizer, Pruning, Trial

pytestmark = pytest.mark.slow


def worker(rank: int, trial_json: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    seen: dict[str, Any] = {}
    prepared = prepare

    def watched(*args: Any) -> Any:
        run = prepared(*args)
        seen["run"] = run
        if run.pruner:
            mask = run.pruner.masks[0]
            seen["noise"] = []
            mask.register_forward_hook(
                lambda m, i, out: (
                    seen["noise"].append(out.detach().sum().item()) if m.training else None
                )
            )
        return run

    import bermo_ray.training.loop as loop

    loop.prepare = watched
    reporter = LocalReporter(rank=rank, world_size=2)
    train(Trial.from_json(trial_json), reporter)
    state = {k: v.double().sum().item() for k, v in seen["run"].built.model.state_dict().items()}
    result = {"reports": reporter.reports, "state": state, "noise": seen.get("noise")}
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def two_workers(trial: Trial, folder: Path) -> list[dict[str, Any]]:
    mp.spawn(worker, (trial.to_json(), str(folder)), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_workers_agree_noise_differs_and_every_row_counts_once(tiny: str, tmp_path: Path) -> None:
    trial = Trial(
        data=Data(task="tense", train_rows=80, dev_rows=51),  # an odd number of dev rows
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        pruning=Pruning(final_lambda=5.0),
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=0.1),
        epochs=2,
        batch_size=16,
    )
    first, second = two_workers(trial, tmp_path)
    assert first["state"] == second["state"]
    for a, b in zip(first["reports"], second["reports"], strict=True):
        same = ("metric", "loss", "remaining", "step", "status")
        assert [a[k] for k in same] == [b[k] for k in same]
        assert a["metric"] * 51 == pytest.approx(round(a["metric"] * 51))  # of 51 rows, not 52
    assert first["noise"][0] != second["noise"][0]


def test_two_workers_take_the_steps_of_one(tmp_path: Path, tiny: str) -> None:
    # Without noise (no dropout, no L0) the gradient of a shared batch is that of the whole one.
    from transformers import BertConfig

    config = BertConfig.from_pretrained(tiny)
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(config, key, 0.0)
    still = tmp_path / "still"
    import shutil

    shutil.copytree(tiny, still)
    config.save_pretrained(still)
    trial = Trial(
        data=Data(task="tense", train_rows=85, dev_rows=51),  # the last batch has 5 rows: 3 and 2
        backbone=str(still),
        fusion=Fusion(name="bermo", dropout=0.0),
        optimizer=Optimizer(learning_rate=1e-3),
        epochs=1,
        batch_size=16,
    )
    alone = run_locally(trial)[-1]
    shared = two_workers(trial, tmp_path)[0]["reports"][-1]
    assert shared["loss"] == pytest.approx(alone["loss"], abs=1e-5)
    assert shared["metric"] == alone["metric"]
