"""Two real processes over gloo, without Ray."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bermo_ray.pruning.pruner import Pruner
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.training import loop
from bermo_ray.training.reporter import LocalReporter, run_locally
from bermo_ray.training.setup import set_up
from bermo_ray.trial import L0, Data, Fusion, LayerDrop, Movement, Optimizer, SoftMovement, Trial

pytestmark = pytest.mark.slow


def worker(rank: int, trial_json: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    seen: dict[str, Any] = {}

    def watched_set_up(*args: Any) -> Any:
        run = seen["run"] = set_up(*args)
        if run.pruner:
            method, masks = run.pruner.method, seen.setdefault("masks", [])
            masked_weight = method.masked_weight

            def watched_mask(matrix: Any, training: bool) -> torch.Tensor:
                out = masked_weight(matrix, training)
                if training and matrix.name.startswith(run.pruner.matrices[0].name):
                    masks.append(out.sum().item())
                return out

            method.masked_weight = watched_mask  # type: ignore[method-assign]
        return run

    loop.set_up = watched_set_up
    reporter = LocalReporter(rank=rank, world_size=2)
    loop.train(Trial.from_json(trial_json), reporter)
    tensors = seen["run"].model.network.state_dict()
    if seen["run"].pruner:
        tensors |= seen["run"].pruner.state_dict()
    state = {k: v.double().sum().item() for k, v in tensors.items()}
    reports = [report.to_dict() for report in reporter.reports]
    result = {"reports": reports, "state": state, "masks": seen.get("masks")}
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    dist.barrier()  # whoever leaves first would break the other's connections
    dist.destroy_process_group()


def two_workers(trial: Trial, folder: Path) -> list[dict[str, Any]]:
    mp.spawn(worker, (trial.to_json(), str(folder)), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


METHODS = {
    "l0": L0(multiplier=5.0),
    "movement": Movement(final_density=0.3),
    "soft_movement": SoftMovement(initial_threshold=0.1, final_threshold=0.1, target_density=0.5),
}


@pytest.mark.parametrize("method", METHODS)
def test_workers_agree_and_every_row_counts_once(method: str, tiny: str, tmp_path: Path) -> None:
    trial = Trial(
        data=Data(task="tense", train_rows=80, dev_rows=51),  # an odd number of dev rows
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        pruning=METHODS[method],
        optimizer=Optimizer(learning_rate=1e-3, score_learning_rate=0.1),
        epochs=2,
        batch_size=16,
        micro_batches=2 if method == "movement" else 1,
    )
    first, second = two_workers(trial, tmp_path)
    assert first["state"] == second["state"]
    for a, b in zip(first["reports"], second["reports"], strict=True):
        same = ("metric", "loss", "remaining", "step", "status", "multiplier_now")
        assert [a[k] for k in same] == [b[k] for k in same]
        assert a["metric"] * 51 == pytest.approx(round(a["metric"] * 51))  # of 51 rows, not 52
    assert len(first["masks"]) == 10  # once per step
    if method == "l0":  # noise differs; what is synchronised agrees
        assert all(a != b for a, b in zip(first["masks"], second["masks"], strict=True))
    else:
        assert first["masks"] == second["masks"]


def noisy_worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 4)
    settings = L0(multiplier=0.0)
    pruner = Pruner(settings, Schedule.from_settings(settings, 10, 1))
    pruner.attach(torch.nn.ModuleList([layer]))
    dense = layer.weight.detach().clone()
    torch.manual_seed(rank + 1)
    x = torch.randn(3, 5)
    with pruner.step(1):
        form = layer.weight.detach().clone()
        layer(x).square().sum().backward()
        grad = layer.weight.grad.clone()  # type: ignore[union-attr]
    mask = form / dense
    gradients = {"mask": mask, "grad": grad * mask, "averaged": layer.weight.grad}
    torch.save(gradients, Path(folder, f"{rank}.pt"))
    dist.barrier()  # whoever leaves first would break the other's connections
    dist.destroy_process_group()


def test_each_worker_goes_through_its_own_l0_mask_before_the_average(tmp_path: Path) -> None:
    mp.spawn(noisy_worker, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert not torch.equal(first["mask"], second["mask"])
    assert torch.equal(first["averaged"], second["averaged"])
    assert torch.allclose(first["averaged"], (first["grad"] + second["grad"]) / 2, atol=1e-5)


# Rows count alike, or by their pieces, or a question has several that two workers may share, or
# pieces are hidden as the batch is made.
@pytest.mark.parametrize("task", ["tense", "entities", "answer_span", "masked_words"])
def test_two_workers_take_the_steps_of_one(tmp_path: Path, tiny: str, task: str) -> None:
    # Without noise (no dropout, no L0) the gradient of a shared batch is that of the whole one.
    from transformers import BertConfig

    config = BertConfig.from_pretrained(tiny)
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(config, key, 0.0)
    still = tmp_path / "still"
    shutil.copytree(tiny, still)
    config.save_pretrained(still)
    trial = Trial(
        # The last batch has 5 rows: 3 and 2.
        data=Data(
            task=task,
            train_rows=85,
            dev_rows=51,
            max_length=24 if task == "answer_span" else 128,
        ),
        backbone=str(still),
        fusion=Fusion(name="bermo", dropout=0.0),
        optimizer=Optimizer(learning_rate=1e-3),
        epochs=1,
        batch_size=16,
    )
    alone = run_locally(trial)[-1]
    in_parts = run_locally(trial.replace(micro_batches=3))[-1]
    assert in_parts.loss == pytest.approx(alone.loss, abs=1e-5)
    shared = two_workers(trial, tmp_path)[0]["reports"][-1]
    assert shared["loss"] == pytest.approx(alone.loss, abs=1e-5)
    assert shared["metric"] == alone.metric
    assert shared.get("other_metrics", {}) == pytest.approx(alone.other_metrics, rel=1e-6)


def test_layers_that_go_while_two_workers_train(deeper: str, tmp_path: Path) -> None:
    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=31),
        backbone=deeper,
        fusion=Fusion(name="bermo"),
        layer_drop=LayerDrop(strategy="top", count=2, epochs_per_layer=1),
        pruning=Movement(final_density=0.5),
        optimizer=Optimizer(learning_rate=1e-3),
        batch_size=16,
        epochs=3,
    )
    first, second = two_workers(trial, tmp_path)
    assert [r["layers_left"] for r in first["reports"]] == [4, 3, 2]
    assert first["state"] == second["state"]
    for mine, alone in zip(first["reports"], run_locally(trial), strict=True):
        assert mine["layers_left"] == alone.layers_left
        assert mine["remaining"] == alone.remaining
