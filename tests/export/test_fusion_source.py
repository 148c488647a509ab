"""The module that travels with a fusion needs torch, transformers and safetensors alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bermo_ray.export import export_trial
from bermo_ray.training.model import load_trained
from bermo_ray.trial import L0, Fusion
from tests.support.sentence_folders import sentence_folder, switches
from tests.support.trial_store import TrialStore, small_trial

CODE = """
import sys, torch; sys.modules['bermo_ray'] = None
from fusion import load
torch.manual_seed(5)
ids = torch.randint(5, 60, (4, 12))
with torch.no_grad():
    print(load('.')(ids).logits.tolist())
"""


def exported_logits(folder: Path) -> torch.Tensor:
    """Of the exported model, in a process that knows none of our code."""
    call = [sys.executable, "-c", CODE]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True)
    return torch.tensor(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "name", ["bermo", "mean", "concat", "dwatt", "extra_layers", "every_layer"]
)
def test_a_fusion_travels_as_a_module_that_needs_none_of_ours(
    store: TrialStore, tiny: str, tmp_path: Path, name: str
) -> None:
    trial = small_trial(tiny, fusion=Fusion(name=name), pruning=L0(initial_score=0.5))
    folder = tmp_path / "out"
    export_trial(store.add(trial), folder, store.uri)
    assert not (folder / "__pycache__").exists()
    torch.manual_seed(5)
    ids = torch.randint(5, 60, (4, 12))
    with torch.no_grad():
        expected = load_trained(store.checkpoint(trial)).model.network(ids).logits
    assert torch.allclose(exported_logits(folder), expected, atol=1e-6)
    assert "fusion.py" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["last", "bermo"])
def test_pooling_travels_along(store: TrialStore, tiny: str, tmp_path: Path, name: str) -> None:
    encoder = sentence_folder(tiny, tmp_path / "sentences", switches("mean_tokens"))
    trial = small_trial(encoder, fusion=Fusion(name=name))
    folder = tmp_path / "out"
    export_trial(store.add(trial), folder, store.uri)
    torch.manual_seed(5)
    ids = torch.randint(5, 60, (4, 12))
    with torch.no_grad():
        expected = load_trained(store.checkpoint(trial)).model.network(ids).logits
    assert torch.allclose(exported_logits(folder), expected, atol=1e-6)
    card = (folder / "README.md").read_text()
    assert "Its head reads the mean over a row's pieces, which `fusion.py` takes." in card
