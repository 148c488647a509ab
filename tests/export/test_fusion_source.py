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
from tests.support.trial_store import TrialStore, small_trial

CODE = """
import sys, torch; sys.modules['bermo_ray'] = None
from fusion import load
torch.manual_seed(5)
ids = torch.randint(5, 60, (4, 12))
with torch.no_grad():
    print(load('.')(ids).logits.tolist())
"""


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
    call = [sys.executable, "-c", CODE]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True)
    exported = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    assert torch.allclose(exported, expected, atol=1e-6)
    assert "fusion.py" in (folder / "README.md").read_text()
