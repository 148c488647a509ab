"""Fusions under torch.compile and under autocast."""

from typing import Any

import pyarrow as pa
import pytest
import torch

from bermo_ray import trial as spec
from bermo_ray.models import assembly
from bermo_ray.models.fusion import FUSIONS
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Trial

TASK = Task("t", "sequence", ("a", "b"), "accuracy", False, lambda *_: pa.table({}))
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 20, 21, 22, 23, 24]])


def built(tiny: str, name: str, **settings: Any) -> Any:
    values = spec.Fusion.model_validate({"name": name, "dropout": 0.0} | settings)
    return assembly.build(Trial(backbone=tiny, fusion=values), TASK).model.eval()


def gradients(model: Any, forward: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    logits = forward(input_ids=IDS).logits
    logits.square().sum().backward()
    kept = {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), kept


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FUSIONS if n != "last"])
def test_compiled_is_eager(tiny: str, name: str) -> None:
    torch._dynamo.reset()
    model = built(tiny, name)
    plain, plain_gradients = gradients(model, model)
    compiled, found = gradients(model, torch.compile(model))
    assert torch.allclose(plain, compiled, atol=1e-5)
    assert found.keys() == plain_gradients.keys()
    for key, gradient in plain_gradients.items():
        assert torch.allclose(gradient, found[key], atol=1e-4), key


@pytest.mark.parametrize("norm", ["layer", "stack", "depth", "none"])
def test_autocast_stays_near_float32(tiny: str, norm: str) -> None:
    model = built(tiny, "bermo", norm=norm)
    with torch.no_grad():
        plain = model(input_ids=IDS).logits
        with torch.autocast("cpu", torch.bfloat16):
            half = model(input_ids=IDS).logits
    assert half.dtype == torch.bfloat16
    assert torch.allclose(plain, half.float(), atol=0.05)
    assert not torch.equal(plain, half.float())
