"""Fusions under torch.compile and under autocast."""

from typing import Any

import pyarrow as pa
import pytest
import torch

from bermo_ray import trial as spec
from bermo_ray.models.fusion import FUSIONS
from bermo_ray.tasks.heads import CLASSIFICATION
from bermo_ray.tasks.task import Task
from bermo_ray.training.model import build_model
from bermo_ray.trial import Trial

TASK = Task("t", CLASSIFICATION, ("a", "b"), "accuracy", False, lambda *_: pa.table({}))
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 20, 21, 22, 23, 24]])


def build(tiny: str, name: str, **settings: Any) -> Any:
    values = spec.Fusion.model_validate({"name": name, "dropout": 0.0} | settings)
    return build_model(Trial(backbone=tiny, fusion=values), TASK).network.eval()


def gradients(network: Any, forward: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    network.zero_grad()
    logits = forward(input_ids=IDS).logits
    logits.square().sum().backward()
    kept = {k: p.grad.clone() for k, p in network.named_parameters() if p.grad is not None}
    return logits.detach(), kept


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FUSIONS if n != "last"])
def test_compiled_is_eager(tiny: str, name: str) -> None:
    torch._dynamo.reset()
    network = build(tiny, name)
    plain, plain_gradients = gradients(network, network)
    compiled, compiled_gradients = gradients(network, torch.compile(network))
    assert torch.allclose(plain, compiled, atol=1e-5)
    assert compiled_gradients.keys() == plain_gradients.keys()
    for key, gradient in plain_gradients.items():
        assert torch.allclose(gradient, compiled_gradients[key], atol=1e-4), key


@pytest.mark.parametrize("norm", ["layer", "stack", "depth", "none"])
def test_autocast_stays_near_float32(tiny: str, norm: str) -> None:
    network = build(tiny, "bermo", norm=norm)
    with torch.no_grad():
        plain = network(input_ids=IDS).logits
        with torch.autocast("cpu", torch.bfloat16):
            half = network(input_ids=IDS).logits
    assert half.dtype == torch.bfloat16
    assert torch.allclose(plain, half.float(), atol=0.05)
    assert not torch.equal(plain, half.float())
