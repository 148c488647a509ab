"""Export, from a trial in a store to what a user loads."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from safetensors.torch import load_file, save_file

from bermo_ray import cli, export
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, heads
from bermo_ray.tasks import registry
from bermo_ray.training import trained
from bermo_ray.training.check import check
from bermo_ray.training.trainer import run_locally
from bermo_ray.trial import Data, Distillation, Fusion, LayerDrop, Optimizer, Pruning, Trial


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Trains trials and records them as a study would; gives run ids."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"

    class Store:
        def __init__(self) -> None:
            self.uri, self.client = uri, MlflowClient(uri)

        def add(self, trial: Trial, status: str = "completed") -> str:
            place = tmp_path / trial.id
            run_locally(trial, place)
            tags = {
                "bermo.kind": "trial",
                "bermo.study": "s",
                "bermo.trial": trial.id,
                "bermo.status": status,
                "bermo.checkpoint": str(place),
            }
            return str(self.client.create_run("0", tags=tags).info.run_id)

    return Store()


def small(tiny: str, **changes: Any) -> Trial:
    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=30),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=1e-3, mask_rate=0.1),
        epochs=1,
        batch_size=16,
    )
    return trial.replace(**changes)


def logits(model: Any) -> torch.Tensor:
    torch.manual_seed(5)
    ids = torch.randint(5, 60, (4, 12))
    with torch.no_grad():
        return heads.logits(model(ids))[0]


def test_a_pruned_trial_loads_as_a_stock_model(store: Any, tiny: str, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    trial = small(tiny, pruning=Pruning(method="movement", final_threshold=0.1))
    run, folder = store.add(trial), tmp_path / "out"
    before, after = export.export(run[:12], folder, store.uri)
    stock = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    own = trained.load(tmp_path / trial.id)
    assert torch.allclose(logits(stock), logits(own.built.model), atol=1e-6)
    assert stock.config.id2label == {0: "present", 1: "past"}
    assert AutoTokenizer.from_pretrained(folder).get_vocab()
    # 10 % of each matrix is left: the reports, the weights and the card say the same.
    matrices = {n: p for n, p in stock.named_parameters() if p.ndim == 2 and ".layer." in n}
    assert all(int(p.count_nonzero()) == int(0.1 * p.numel()) for p in matrices.values())
    assert after.nonzero == sum(int(p.count_nonzero()) for p in stock.parameters())
    assert after.dense_bytes == pytest.approx(before.dense_bytes, rel=0.01)
    assert after.compressed_bytes < 0.85 * before.compressed_bytes
    card = (folder / "README.md").read_text()
    assert f"{after.nonzero:,}" in card
    assert "zeros are stored and multiplied like any number" in card
    recipe = json.loads((folder / "recipe.json").read_text())
    assert Trial.from_dict(recipe["trial"]) == trial
    assert f"**{recipe['result']['metric']:.4f}**" in card
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("task", ["entities", "answer_span", "similarity", "masked_words"])
def test_every_head_is_exported(store: Any, tiny: str, tmp_path: Path, task: str) -> None:
    trial = small(tiny, data__task=task, pruning=Pruning(mask_start=0.5))
    export.export(store.add(trial), tmp_path / "out", store.uri)
    stock = heads.load(str(tmp_path / "out"), registry.get(task)).eval()
    own = trained.load(tmp_path / trial.id).built.model
    assert torch.allclose(logits(stock), logits(own), atol=1e-6)


@pytest.mark.parametrize(
    "name", ["bermo", "mean", "concat", "dwatt", "extra_layers", "every_layer"]
)
def test_a_fusion_travels_as_a_module_that_needs_none_of_ours(
    store: Any, tiny: str, tmp_path: Path, name: str
) -> None:
    trial = small(tiny, fusion=Fusion(name=name), pruning=Pruning(mask_start=0.5))
    folder = tmp_path / "out"
    export.export(store.add(trial), folder, store.uri)
    expected = logits(trained.load(tmp_path / trial.id).built.model)
    code = (
        "import sys, torch; sys.modules['bermo_ray'] = None\n"
        "from fusion import load\n"
        "torch.manual_seed(5)\n"
        "ids = torch.randint(5, 60, (4, 12))\n"
        "with torch.no_grad():\n"
        "    print(load('.')(ids).logits.tolist())"
    )
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True)
    found = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    assert torch.allclose(found, expected, atol=1e-6)
    assert "fusion.py" in (folder / "README.md").read_text()


def test_dropped_layers_make_a_smaller_stock_model(store: Any, tiny: str, tmp_path: Path) -> None:
    trial = small(tiny, layer_drop=LayerDrop(strategy="top", count=1))
    before, after = export.export(store.add(trial), tmp_path / "out", store.uri)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["num_hidden_layers"] == 1
    assert after.dense_bytes < before.dense_bytes
    assert "smaller and every forward faster" in (tmp_path / "out" / "README.md").read_text()


def test_closed_gates_are_plain_zeros_and_cost_nothing(
    store: Any, tiny: str, tmp_path: Path
) -> None:
    trial = small(tiny, pruning=Pruning(mask_start=-2.4))  # by −ln 11: about half of them close
    export.export(store.add(trial), tmp_path / "out", store.uri)
    for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items():
        zeros = tensor[tensor == 0]
        assert not torch.signbit(zeros).any(), name


def test_compressed_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sparse = torch.randn(37, 53) * (torch.rand(37, 53) < 0.1)
    sparse[0, 0], sparse[0, 1], sparse[0, 2] = -0.0, float("nan"), float("inf")
    tensors = {
        "sparse": sparse,
        "dense": torch.randn(9, 4),
        "half": torch.zeros(5, 5, dtype=torch.bfloat16),
        "whole": torch.tensor([0, 3, 0], dtype=torch.int64),
        "empty": torch.zeros(4),
        "scalar": torch.tensor(0.0),
    }
    export.compress(tensors, tmp_path / "x.zst")
    again = export.decompress(tmp_path / "x.zst")
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (again[name].dtype, again[name].shape) == (tensor.dtype, tensor.shape)
        flat = [t.reshape(-1).view(torch.uint8) for t in (again[name], tensor)]
        assert torch.equal(*flat), name
    # A bit for each weight, and a tenth of the values.
    size = (tmp_path / "x.zst").stat().st_size
    assert size < 37 * 53 * 4 / 4
    (tmp_path / "y.zst").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="^[^\n]*y.zst: not a compressed model"):
        export.decompress(tmp_path / "y.zst")


def test_unpack_makes_the_weights_again(store: Any, tiny: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    trial = small(tiny, pruning=Pruning(method="magnitude", final_threshold=0.2))
    export.export(store.add(trial), folder, store.uri)
    before = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    cli.unpack(folder)
    after = load_file(folder / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    heads.load(str(folder), registry.get("tense"))


def test_an_export_with_a_fusion_or_without_a_head_does_not_teach(
    store: Any, tiny: str, tmp_path: Path
) -> None:
    export.export(store.add(small(tiny, fusion=Fusion(name="mean"))), tmp_path / "out", store.uri)
    unfinished = tmp_path / "unfinished"
    run_locally(small(tiny, epochs=2), unfinished)
    progress = json.loads((unfinished / "progress.json").read_text())
    progress["history"][-1]["status"] = "diverged"
    (unfinished / "progress.json").write_text(json.dumps(progress))
    for folder, task, line in (
        (tmp_path / "out", "tense", "was exported with a fusion; give the trial itself"),
        (Path(tiny), "similarity", "has no trained head for regression tasks: no classifier."),
        (unfinished, "tense", "is diverged, not completed"),
        (tmp_path / small(tiny, fusion=Fusion(name="mean")).id, "similarity", "its head is for"),
    ):
        trial = small(tiny, data__task=task, distillation=Distillation(teacher=str(folder)))
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            check([trial])
        assert line in str(caught.value)


def test_a_trial_can_teach_another(store: Any, tiny: str, tmp_path: Path) -> None:
    from bermo_ray.study import OneTask

    teacher = small(tiny, fusion=Fusion(name="bermo"), pruning=Pruning())
    run = store.add(teacher)
    options = OneTask(teacher=run[:10], runs=tmp_path, backbone=tiny, train_rows=32)
    student = options.trial(1, 16)
    assert student.distillation is not None
    assert student.distillation.teacher == str(tmp_path / teacher.id)
    assert backbone.location(student.backbone) == backbone.location(tiny)
    taught = run_locally(student.replace(data__dev_rows=20))[-1]
    alone = run_locally(student.replace(data__dev_rows=20, distillation=None))[-1]
    assert taught["loss"] != alone["loss"]
    with pytest.raises(UserError, match="no trial 'ffffffffffff'"):
        OneTask(teacher="ffffffffffff", runs=tmp_path).trial(1, 16)


def test_what_cannot_be_exported_is_one_line(store: Any, tiny: str, tmp_path: Path) -> None:
    trial = small(tiny)
    run = store.add(trial)
    running = store.add(trial.replace(seed=1), status="running")
    gone = store.add(trial.replace(seed=2))
    store.client.set_tag(gone, "bermo.checkpoint", str(tmp_path / "nowhere"))
    broken = store.add(trial.replace(seed=3))
    weights = tmp_path / trial.replace(seed=3).id / "model.safetensors"
    tensors = load_file(weights)
    save_file({k: v * float("nan") for k, v in tensors.items()}, weights)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    for asked, folder, line in (
        ("nothing", tmp_path / "out", "no trial 'nothing' in"),
        ("", tmp_path / "out", "may be any of 4 trials"),
        (run, tmp_path / "full", "is not an empty folder"),
        (running, tmp_path / "out", "is running: only a trial that has ended"),
        (gone, tmp_path / "out", "its checkpoint is gone"),
        (broken, tmp_path / "out", "are not finite: the trial diverged"),
    ):
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            export.export(asked, folder, store.uri)
        assert line in str(caught.value)
        assert not (tmp_path / "out").exists()
