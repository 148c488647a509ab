"""Every method on every family: bare parameters (XLNet) and shared ones (ALBERT) included."""

from typing import Any

import pytest
import torch
import transformers

from bermo_ray.models import backbone, heads
from bermo_ray.pruning.masks import METHODS
from bermo_ray.pruning.pruner import Pruner, count, prunable
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import Pruning
from tests.models.test_families import FAMILIES, IDS, MASK

# Matrices of 4 layers of width 16 and 24: q k v o and two of the feed-forward.
SIZES = {"albert": (6, 4 * 16 * 16 + 2 * 16 * 24), "xlnet": (28, 4 * (5 * 16 * 16 + 2 * 16 * 24))}


def model_of(family: str) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family], num_labels=2)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_prunes_and_a_fold_is_what_was_evaluated(family: str, method: str) -> None:
    model = model_of(family)
    layers = backbone.stack(model).modules
    tau = {} if method == "l0" else {"initial_threshold": 0.3, "final_threshold": 0.3}
    settings = Pruning(method=method, **tau)
    pruner = Pruner(settings, Schedule.of(settings, 10, 1))
    pruner.attach(layers)
    trained = [*prunable(layers).values(), *pruner.scores()]
    adam = torch.optim.AdamW(trained, lr=0.3)
    for step in (1, 2):
        with pruner.step(step):
            heads.logits(model(IDS, attention_mask=MASK))[0].square().sum().backward()
        assert all(m.weight.grad is not None for m in pruner.matrices)
        assert all(torch.isfinite(p.grad).all() for p in trained if p.grad is not None)
        adam.step()
        adam.zero_grad()
    with pruner.frozen():
        expected = heads.logits(model(IDS, attention_mask=MASK))[0].clone()
        left = count(model, layers, pruner)
    if METHODS[method].ranked:
        assert left.kept == sum(int(0.3 * m.size) for m in pruner.matrices)
    pruner.fold()
    assert count(model, layers) == left
    assert torch.equal(heads.logits(model(IDS, attention_mask=MASK))[0], expected)


def test_bare_and_shared_matrices_are_masked_and_counted_once() -> None:
    for family, (number, size) in SIZES.items():
        matrices = prunable(backbone.stack(model_of(family)).modules)
        assert (len(matrices), sum(p.numel() for p in matrices.values())) == (number, size)
