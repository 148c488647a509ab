"""Compressed weights, bit for bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bermo_ray.errors import UserError
from bermo_ray.export import export_trial, unpack
from bermo_ray.export.compression import compress, decompress
from bermo_ray.models.stock import load_stock
from bermo_ray.tasks.registry import get_task
from bermo_ray.trial import Magnitude
from tests.support.trial_store import TrialStore, small_trial


def test_compressed_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sparse = torch.randn(37, 53) * (torch.rand(37, 53) < 0.1)
    sparse[0, 0], sparse[0, 1], sparse[0, 2] = -0.0, float("nan"), float("inf")
    tensors = {
        "sparse": sparse,
        "dense": torch.randn(9, 4),
        "half": torch.zeros(5, 5, dtype=torch.bfloat16),
        "integers": torch.tensor([0, 3, 0], dtype=torch.int64),
        "empty": torch.zeros(4),
        "scalar": torch.tensor(0.0),
    }
    compress(tensors, tmp_path / "x.zst")
    decompressed = decompress(tmp_path / "x.zst")
    assert decompressed.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (decompressed[name].dtype, decompressed[name].shape) == (tensor.dtype, tensor.shape)
        flat = [t.reshape(-1).view(torch.uint8) for t in (decompressed[name], tensor)]
        assert torch.equal(*flat), name
    # A bit for each weight, and a tenth of the values.
    size = (tmp_path / "x.zst").stat().st_size
    assert size < 37 * 53 * 4 / 4
    (tmp_path / "y.zst").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="^[^\n]*y.zst: not a compressed model"):
        decompress(tmp_path / "y.zst")


def test_unpack_makes_the_weights_again(store: TrialStore, tiny: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    trial = small_trial(tiny, pruning=Magnitude(final_density=0.2))
    export_trial(store.add(trial), folder, store.uri)
    before = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    assert unpack(folder) == folder / "model.safetensors"
    after = load_file(folder / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    load_stock(str(folder), get_task("tense"))
    assert not list(folder.glob("*.partial"))
