"""Every method on every family: bare parameters (XLNet) and shared ones (ALBERT) included."""

from typing import Any

import pytest
import torch
import transformers

from bermo_ray.models import backbone
from bermo_ray.pruning.counting import count_parameters
from bermo_ray.pruning.pruner import Pruner, prunable_matrices
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import L0, Magnitude, Movement, Pruning, SoftMovement
from tests.support.families import FAMILIES, IDS, MASK

# Matrices of 4 layers of width 16 and 24: q k v o and two of the feed-forward.
SIZES = {"albert": (6, 4 * 16 * 16 + 2 * 16 * 24), "xlnet": (28, 4 * (5 * 16 * 16 + 2 * 16 * 24))}


SETTINGS: dict[str, Pruning] = {
    "magnitude": Magnitude(initial_density=0.3, final_density=0.3),
    "movement": Movement(initial_density=0.3, final_density=0.3),
    "soft_movement": SoftMovement(initial_threshold=0.3, final_threshold=0.3),
    "l0": L0(),
}


def build_network(family: str) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family], num_labels=2)
    network = transformers.AutoModelForSequenceClassification.from_config(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return network.eval()


@pytest.mark.parametrize("method", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_prunes_and_a_fold_is_what_was_evaluated(family: str, method: str) -> None:
    network, settings = build_network(family), SETTINGS[method]
    modules = backbone.find_stack(network).modules
    pruner = Pruner(settings, Schedule.from_settings(settings, 10, 1))
    pruner.attach(modules)
    trained = [*prunable_matrices(modules).values(), *pruner.scores()]
    adam = torch.optim.AdamW(trained, lr=0.3)
    for step in (1, 2):
        with pruner.step(step):
            network(IDS, attention_mask=MASK).logits.square().sum().backward()
        assert all(m.weight.grad is not None for m in pruner.matrices)
        assert all(torch.isfinite(p.grad).all() for p in trained if p.grad is not None)
        adam.step()
        adam.zero_grad()
    with pruner.frozen():
        expected = network(IDS, attention_mask=MASK).logits.clone()
        count = count_parameters(network, modules, pruner)
    if isinstance(settings, Magnitude | Movement):
        assert count.kept == sum(int(0.3 * m.size) for m in pruner.matrices)
    pruner.fold()
    assert count_parameters(network, modules) == count
    assert torch.equal(network(IDS, attention_mask=MASK).logits, expected)


def test_bare_and_shared_matrices_are_masked_and_counted_once() -> None:
    for family, (number, size) in SIZES.items():
        matrices = prunable_matrices(backbone.find_stack(build_network(family)).modules)
        assert (len(matrices), sum(p.numel() for p in matrices.values())) == (number, size)
