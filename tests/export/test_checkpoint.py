"""Export, from a trial in a store to what a user loads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bermo_ray.command_line.options import OneTaskOptions
from bermo_ray.errors import UserError
from bermo_ray.export import export_trial
from bermo_ray.models import backbone
from bermo_ray.models.stock import load_stock
from bermo_ray.tasks.registry import get_task
from bermo_ray.training.check import check_trials
from bermo_ray.training.model import load_trained
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import L0, Distillation, Fusion, LayerDrop, Movement, Trial
from tests.support.trial_store import TrialStore, small_trial


def logits(network: Any, task: str = "tense") -> torch.Tensor:
    torch.manual_seed(5)
    ids = torch.randint(5, 60, (4, 12))
    with torch.no_grad():
        return get_task(task).head.logits(network(ids))[0]


def test_a_pruned_trial_loads_as_a_stock_model(
    store: TrialStore, tiny: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    trial = small_trial(tiny, pruning=Movement(final_density=0.1))
    run, folder = store.add(trial), tmp_path / "out"
    before, after = export_trial(run[:12], folder, store.uri)
    stock = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    trained = load_trained(store.checkpoint(trial))
    assert torch.allclose(logits(stock), logits(trained.model.network), atol=1e-6)
    assert stock.config.id2label == {0: "present", 1: "past"}
    assert AutoTokenizer.from_pretrained(folder).get_vocab()
    # 10 % of each matrix is left: the reports, the weights and the card say the same.
    matrices = {n: p for n, p in stock.named_parameters() if p.ndim == 2 and ".layer." in n}
    assert all(int(p.count_nonzero()) == int(0.1 * p.numel()) for p in matrices.values())
    assert after.nonzero_parameters == sum(int(p.count_nonzero()) for p in stock.parameters())
    assert after.dense_bytes == pytest.approx(before.dense_bytes, rel=0.01)
    assert after.compressed_bytes < 0.85 * before.compressed_bytes
    card = (folder / "README.md").read_text()
    assert f"{after.nonzero_parameters:,}" in card
    assert "zeros are stored and multiplied like any number" in card
    recipe = json.loads((folder / "recipe.json").read_text())
    assert Trial.from_dict(recipe["trial"]) == trial
    assert f"**{recipe['result']['metric']:.4f}**" in card
    assert recipe["measurements"]["exported"] == vars(after)
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("task", ["entities", "answer_span", "similarity", "masked_words"])
def test_every_head_is_exported(store: TrialStore, tiny: str, tmp_path: Path, task: str) -> None:
    trial = small_trial(tiny, data={"task": task}, pruning=L0(initial_score=0.5))
    export_trial(store.add(trial), tmp_path / "out", store.uri)
    stock = load_stock(str(tmp_path / "out"), get_task(task)).eval()
    trained = load_trained(store.checkpoint(trial))
    assert torch.allclose(logits(stock, task), logits(trained.model.network, task), atol=1e-6)


def test_dropped_layers_make_a_smaller_stock_model(
    store: TrialStore, tiny: str, tmp_path: Path
) -> None:
    trial = small_trial(tiny, layer_drop=LayerDrop(strategy="top", count=1))
    before, after = export_trial(store.add(trial), tmp_path / "out", store.uri)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["num_hidden_layers"] == 1
    assert after.dense_bytes < before.dense_bytes
    assert "smaller and every forward faster" in (tmp_path / "out" / "README.md").read_text()


def test_closed_gates_are_plain_zeros_and_cost_nothing(
    store: TrialStore, tiny: str, tmp_path: Path
) -> None:
    trial = small_trial(tiny, pruning=L0(initial_score=-2.4))  # by −ln 11: about half of them close
    export_trial(store.add(trial), tmp_path / "out", store.uri)
    for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items():
        zeros = tensor[tensor == 0]
        assert not torch.signbit(zeros).any(), name


def test_an_export_with_a_fusion_or_without_a_head_does_not_teach(
    store: TrialStore, tiny: str, tmp_path: Path
) -> None:
    fused = small_trial(tiny, fusion=Fusion(name="mean"))
    export_trial(store.add(fused), tmp_path / "out", store.uri)
    unfinished = tmp_path / "unfinished"
    run_locally(small_trial(tiny, epochs=2), unfinished)
    progress = json.loads((unfinished / "progress.json").read_text())
    progress["history"][-1]["status"] = "diverged"
    (unfinished / "progress.json").write_text(json.dumps(progress))
    for folder, task, line in (
        (tmp_path / "out", "tense", "was exported with a fusion; give the trial itself"),
        (Path(tiny), "similarity", "is a BertForMaskedLM, but similarity needs a Bert"),
        (unfinished, "tense", "is diverged, not completed"),
        (store.checkpoint(fused), "similarity", "its head is for"),
    ):
        trial = small_trial(
            tiny, data={"task": task}, distillation=Distillation(teacher=str(folder))
        )
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            check_trials([trial])
        assert line in str(caught.value)


def test_a_trial_can_teach_another(store: TrialStore, tiny: str, tmp_path: Path) -> None:
    teacher = small_trial(tiny, fusion=Fusion(name="bermo"), pruning=L0())
    run = store.add(teacher)
    shared = {"runs": tmp_path, "backbone": tiny, "epochs": 1, "batch_size": 16}
    student = OneTaskOptions(teacher=run[:10], train_rows=32, **shared).base_trial("l0")
    assert student.distillation is not None
    assert student.distillation.teacher == str(store.checkpoint(teacher))
    assert backbone.locate(student.backbone) == backbone.locate(tiny)
    taught = run_locally(student.replace(data={"dev_rows": 20}))[-1]
    alone = run_locally(student.replace(data={"dev_rows": 20}, distillation=None))[-1]
    assert taught.loss != alone.loss
    with pytest.raises(UserError, match="no trial 'ffffffffffff'"):
        OneTaskOptions(teacher="ffffffffffff", **shared).base_trial("l0")


def test_what_cannot_be_exported_is_one_line(store: TrialStore, tiny: str, tmp_path: Path) -> None:
    trial = small_trial(tiny)
    run = store.add(trial)
    running = store.add(trial.replace(seed=1), status="running")
    gone = store.add(trial.replace(seed=2))
    store.client.set_tag(gone, "bermo.checkpoint", str(tmp_path / "nowhere"))
    broken = store.add(trial.replace(seed=3))
    weights = store.checkpoint(trial.replace(seed=3)) / "model.safetensors"
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
            export_trial(asked, folder, store.uri)
        assert line in str(caught.value)
        assert not (tmp_path / "out").exists()
