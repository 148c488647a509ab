"""Two real processes over gloo, without Ray."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bermo_ray.pruning.pruner import Pruner
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.training.loop import prepare, train
from bermo_ray.training.trainer import LocalReporter, run_locally
from bermo_ray.trial import Data, Fusion, LayerDrop, Optimizer, Pruning, Trial

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
            method, masks = run.pruner.method, seen.setdefault("masks", [])
            made = method.masked

            def masked(matrix: Any, training: bool) -> torch.Tensor:
                out = made(matrix, training)
                if training and matrix is run.pruner.matrices[0]:
                    masks.append(out.sum().item())
                return out

            method.masked = masked
        return run

    import bermo_ray.training.loop as loop

    loop.prepare = watched
    reporter = LocalReporter(rank=rank, world_size=2)
    train(Trial.from_json(trial_json), reporter)
    tensors = seen["run"].built.model.state_dict()
    if seen["run"].pruner:
        tensors |= seen["run"].pruner.state_dict()
    state = {k: v.double().sum().item() for k, v in tensors.items()}
    result = {"reports": reporter.reports, "state": state, "masks": seen.get("masks")}
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def two_workers(trial: Trial, folder: Path) -> list[dict[str, Any]]:
    mp.spawn(worker, (trial.to_json(), str(folder)), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


METHODS = {
    "l0": Pruning(final_lambda=5.0),
    "movement": Pruning(method="movement", final_threshold=0.3),
    "soft_movement": Pruning(
        method="soft_movement", initial_threshold=0.1, final_threshold=0.1, target=0.5
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_workers_agree_and_every_row_counts_once(method: str, tiny: str, tmp_path: Path) -> None:
    trial = Trial(
        data=Data(task="tense", train_rows=80, dev_rows=51),  # an odd number of dev rows
        backbone=tiny,
        fusion=Fusion(name="bermo"),
        pruning=METHODS[method],
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=0.1),
        epochs=2,
        batch_size=16,
        micro_batches=2 if method == "movement" else 1,
    )
    first, second = two_workers(trial, tmp_path)
    assert first["state"] == second["state"]
    for a, b in zip(first["reports"], second["reports"], strict=True):
        same = ("metric", "loss", "remaining", "step", "status", "lambda")
        assert [a[k] for k in same] == [b[k] for k in same]
        assert a["metric"] * 51 == pytest.approx(round(a["metric"] * 51))  # of 51 rows, not 52
    assert len(first["masks"]) == 10  # once a step
    if method == "l0":  # noise differs; what is synchronised agrees
        assert all(a != b for a, b in zip(first["masks"], second["masks"], strict=True))
    else:
        assert first["masks"] == second["masks"]


def noisy_worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 4)
    pruner = Pruner(Pruning(final_lambda=0.0), Schedule.of(Pruning(final_lambda=0.0), 10, 1))
    pruner.attach(torch.nn.ModuleList([layer]))
    dense = layer.weight.detach().clone()
    torch.manual_seed(rank + 1)
    x = torch.randn(3, 5)
    with pruner.step(1):
        form = layer.weight.detach().clone()
        layer(x).square().sum().backward()
        grad = layer.weight.grad.clone()  # type: ignore[union-attr]
    mask = form / dense
    own = {"mask": mask, "grad": grad * mask, "found": layer.weight.grad}
    torch.save(own, Path(folder, f"{rank}.pt"))
    dist.destroy_process_group()


def test_each_worker_goes_through_its_own_l0_mask_before_the_average(tmp_path: Path) -> None:
    mp.spawn(noisy_worker, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert not torch.equal(first["mask"], second["mask"])
    assert torch.equal(first["found"], second["found"])
    assert torch.allclose(first["found"], (first["grad"] + second["grad"]) / 2, atol=1e-5)


# Rows count alike, or by their pieces, or a question has several that two workers may share.
@pytest.mark.parametrize("task", ["tense", "entities", "answer_span"])
def test_two_workers_take_the_steps_of_one(tmp_path: Path, tiny: str, task: str) -> None:
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
    assert in_parts["loss"] == pytest.approx(alone["loss"], abs=1e-5)
    shared = two_workers(trial, tmp_path)[0]["reports"][-1]
    assert shared["loss"] == pytest.approx(alone["loss"], abs=1e-5)
    assert shared["metric"] == alone["metric"]
    assert shared.get("others") == alone.get("others")


def test_layers_that_go_while_two_workers_train(deeper: str, tmp_path: Path) -> None:
    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=31),
        backbone=deeper,
        fusion=Fusion(name="bermo"),
        layer_drop=LayerDrop(strategy="top", count=2, every=1),
        pruning=Pruning(method="movement", final_threshold=0.5),
        optimizer=Optimizer(learning_rate=1e-3),
        batch_size=16,
        epochs=3,
    )
    first, second = two_workers(trial, tmp_path)
    assert [r["layers"] for r in first["reports"]] == [4, 3, 2]
    assert first["state"] == second["state"]
    for mine, alone in zip(first["reports"], run_locally(trial), strict=True):
        assert mine["layers"] == alone["layers"]
        assert mine["remaining"] == alone["remaining"]
