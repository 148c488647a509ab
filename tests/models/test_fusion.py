import math

import pytest
import torch
from torch import nn

from bermo_ray.errors import UserError
from bermo_ray.models.fusion import FUSIONS, Bermo, attach
from bermo_ray.trial import Fusion

STATES = torch.tensor([[1.0, 2.0, 6.0], [0.0, 3.0, 3.0], [-1.0, 1.0, 0.0]])  # h_0..h_2, d=3


def fuse(fusion: Bermo, states: torch.Tensor = STATES) -> torch.Tensor:
    for index, state in enumerate(states):
        fusion.add(index, state[None, None])
    return fusion.result()[0, 0]


def bermo(**settings: object) -> Bermo:
    values = {"name": "bermo", "dropout": 0.0} | settings
    fusion = Bermo(Fusion.model_validate(values), layer_count=2, width=3)
    with torch.no_grad():
        fusion.alpha.copy_(torch.tensor([0.0, math.log(2.0), math.log(5.0)]))  # softmax: 1/8 2/8 5/8
        fusion.gamma.fill_(2.0)
    return fusion


def test_without_norm_it_is_eq_1_by_hand() -> None:
    # 2·(1/8·(1,2,6) + 2/8·(0,3,3) + 5/8·(−1,1,0)) = (−1, 26/8, 24/8)
    assert torch.allclose(fuse(bermo(norm="none")), torch.tensor([-1.0, 3.25, 3.0]))


def test_raw_weights_are_alpha_itself() -> None:
    fusion = bermo(norm="none", weights="raw")
    with torch.no_grad():
        fusion.alpha.copy_(torch.tensor([1.0, -1.0, 0.5]))
    # 2·((1,2,6) − (0,3,3) + ½(−1,1,0)) = (1, −1, 6)
    assert torch.allclose(fuse(fusion), torch.tensor([1.0, -1.0, 6.0]))


def test_layer_norm_is_over_each_states_width() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()

    expected = 2 * (norm(STATES[0]) / 8 + norm(STATES[1]) / 4 + norm(STATES[2]) * 5 / 8)
    assert torch.allclose(fuse(bermo(norm="layer")), expected, atol=1e-6)


def test_stack_norm_is_joint_over_layers_and_width() -> None:
    z = (STATES - STATES.mean()) / (STATES.var(correction=0) + 1e-5).sqrt()
    assert torch.allclose(fuse(bermo(norm="stack")), 2 * (z[0] / 8 + z[1] / 4 + z[2] * 5 / 8))


def test_depth_norm_is_over_layers_and_zero_at_uniform_alpha() -> None:
    z = (STATES - STATES.mean(0)) / (STATES.var(0, correction=0) + 1e-5).sqrt()
    fusion = bermo(norm="depth")
    assert torch.allclose(fuse(fusion), 2 * (z[0] / 8 + z[1] / 4 + z[2] * 5 / 8), atol=1e-6)
    nn.init.zeros_(fusion.alpha)
    assert fuse(fusion).abs().max() < 1e-6


def test_a_subset_of_layers_mixes_only_those() -> None:
    fusion = Bermo(
        Fusion(name="bermo", norm="none", dropout=0.0, layers=(0, 2), start="zeros"), 2, 3
    )
    assert torch.allclose(fuse(fusion), (STATES[0] + STATES[2]) / 2)


def test_it_learns_l_plus_2_scalars_from_xavier_or_zeros() -> None:
    torch.manual_seed(0)
    fusions = [Bermo(Fusion(name="bermo"), 12, 8) for _ in range(200)]
    assert sum(p.numel() for p in fusions[0].parameters()) == 14
    values = torch.stack([f.alpha.detach() for f in fusions])
    bound = math.sqrt(6 / 14)  # (1, L+1): fan in 13, fan out 1
    assert values.abs().max() <= bound
    assert values.abs().max() > 0.95 * bound
    assert fusions[0].gamma.item() == 1.0
    assert Bermo(Fusion(name="bermo", start="zeros"), 12, 8).alpha.abs().max() == 0
    assert not Bermo(Fusion(name="bermo", scale=False), 12, 8).gamma.requires_grad


def test_a_broken_off_forward_leaves_nothing_behind() -> None:
    fusion = bermo(norm="none")
    clean = fuse(fusion)
    fusion.add(0, torch.full((1, 1, 3), 100.0))
    assert torch.equal(fuse(fusion), clean)


def test_dropout_acts_only_in_training() -> None:
    fusion = bermo(norm="none")
    fusion.settings = fusion.settings.model_copy(update={"dropout": 0.5})
    fusion.eval()
    assert torch.equal(fuse(fusion), fuse(fusion))
    fusion.train()
    torch.manual_seed(0)
    mean = torch.stack([fuse(fusion) for _ in range(4000)]).mean(0)
    assert torch.allclose(mean, torch.tensor([-1.0, 3.25, 3.0]), atol=0.15)
    assert not torch.equal(fuse(fusion), fuse(fusion))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (Fusion(name="brmo"), "unknown fusion 'brmo': did you mean bermo?"),
        (Fusion(name="bermo", layers=(0, 7)), "got 7, expected 0 <= layer <= 6"),
        (Fusion(name="bermo", layers=(2, 1)), "rising order"),
        (Fusion(name="bermo", layers=()), "rising order"),
    ],
)
def test_bad_settings_are_one_line(settings: Fusion, line: str) -> None:
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(6))
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        attach(nn.Module(), layers, settings, 2)
    assert line in str(caught.value)


def test_the_registry_is_what_the_documents_name() -> None:
    assert set(FUSIONS) == {"last", "bermo"}
