import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.models.backbone import Stack
from bermo_ray.models.fusion import (
    FUSIONS,
    Bermo,
    FusionModule,
    attach_fusion,
    bermo_mix,
    depth_wise_attention,
)

STATES = torch.tensor([[1.0, 2.0, 6.0], [0.0, 3.0, 3.0], [-1.0, 1.0, 0.0]])  # h_0..h_2, d=3


def never(layer: nn.Module, state: torch.Tensor) -> torch.Tensor:
    raise AssertionError


def stack(depth: int, width: int) -> Stack:
    config = SimpleNamespace(num_hidden_layers=depth, hidden_size=width)
    return Stack(
        SimpleNamespace(config=config), nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))
    )


def fuse(fusion: FusionModule, states: torch.Tensor = STATES) -> torch.Tensor:
    for index, state in enumerate(states):
        out = fusion.on_state(index, state[None, None], never)
    return out[0, 0]


def bermo(**settings: object) -> Bermo:
    values = {"name": "bermo", "dropout": 0.0} | settings
    fusion = Bermo(spec.Fusion.model_validate(values), stack(2, 3))
    with torch.no_grad():
        fusion.alpha.copy_(
            torch.tensor([0.0, math.log(2.0), math.log(5.0)])
        )  # softmax: 1/8 2/8 5/8
        fusion.gamma.fill_(2.0)
    return fusion


def test_without_norm_it_is_eq_1_by_hand() -> None:
    # 2·(1/8·(1,2,6) + 2/8·(0,3,3) + 5/8·(−1,1,0)) = (−1, 26/8, 24/8)
    assert torch.allclose(fuse(bermo(norm="none")), torch.tensor([-1.0, 3.25, 3.0]))


def test_raw_weights_are_alpha_itself() -> None:
    fusion = bermo(norm="none", weighting="raw")
    with torch.no_grad():
        fusion.alpha.copy_(torch.tensor([1.0, -1.0, 0.5]))
    # 2·((1,2,6) − (0,3,3) + ½(−1,1,0)) = (1, −1, 6)
    assert torch.allclose(fuse(fusion), torch.tensor([1.0, -1.0, 6.0]))


def test_layer_norm_is_over_each_states_width() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()

    expected = 2 * (norm(STATES[0]) / 8 + norm(STATES[1]) / 4 + norm(STATES[2]) * 5 / 8)
    assert torch.allclose(fuse(bermo(norm="layer")), expected, atol=1e-6)


@pytest.mark.parametrize("norm", ["layer", "stack", "depth", "none"])
def test_evaluation_streams_to_what_training_stacks(norm: str) -> None:
    torch.manual_seed(1)
    states = torch.randn(9, 7, 5, 16) * 3 + torch.randn(9, 1, 1, 16) * 5 + 20
    fusion = Bermo(
        spec.Fusion.model_validate({"name": "bermo", "norm": norm, "dropout": 0.0}), stack(8, 16)
    )

    def run() -> torch.Tensor:
        for index, state in enumerate(states):
            out = fusion.on_state(index, state, never)
        return out

    stacked = run()
    fusion.eval()
    with torch.no_grad():
        assert torch.allclose(run(), stacked, atol=2e-5)


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
        spec.Fusion(
            name="bermo", norm="none", dropout=0.0, mixed_states=(0, 2), alpha_init="zeros"
        ),
        stack(2, 3),
    )
    assert torch.allclose(fuse(fusion), (STATES[0] + STATES[2]) / 2)


def test_it_learns_l_plus_2_scalars_from_xavier_or_zeros() -> None:
    torch.manual_seed(0)
    fusions = [Bermo(spec.Fusion(name="bermo"), stack(12, 8)) for _ in range(200)]
    assert sum(p.numel() for p in fusions[0].parameters()) == 14
    values = torch.stack([f.alpha.detach() for f in fusions])
    bound = math.sqrt(6 / 14)  # (1, L+1): fan in 13, fan out 1
    assert values.abs().max() <= bound
    assert values.abs().max() > 0.95 * bound
    assert fusions[0].gamma.item() == 1.0
    assert Bermo(spec.Fusion(name="bermo", alpha_init="zeros"), stack(12, 8)).alpha.abs().max() == 0
    assert not Bermo(spec.Fusion(name="bermo", learn_gamma=False), stack(12, 8)).gamma.requires_grad


def test_a_broken_off_forward_leaves_nothing_behind() -> None:
    fusion = bermo(norm="none")
    clean = fuse(fusion)
    fusion.on_state(0, torch.full((1, 1, 3), 100.0), never)
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
        (spec.Fusion(name="brmo"), "unknown fusion 'brmo': did you mean bermo?"),
        (spec.Fusion(name="bermo", mixed_states=(0, 7)), "got 7, expected 0 <= state <= 6"),
        (spec.Fusion(name="bermo", mixed_states=(2, 1)), "rising order"),
        (spec.Fusion(name="bermo", mixed_states=()), "rising order"),
    ],
)
def test_bad_settings_are_one_line(settings: spec.Fusion, line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        attach_fusion(nn.Module(), stack(6, 2), settings)
    assert line in str(caught.value)


def test_the_registry_is_what_the_documents_name() -> None:
    assert set(FUSIONS) == {
        "last", "bermo", "mean", "concat", "dwatt", "extra_layers", "every_layer",
    }  # fmt: skip


def build(name: str, depth: int = 2, width: int = 3, **settings: object) -> FusionModule:
    torch.manual_seed(0)
    values = spec.Fusion.model_validate({"name": name, "dropout": 0.0} | settings)
    return FUSIONS[name](values, stack(depth, width))


def test_last_and_mean_by_hand() -> None:
    assert torch.equal(fuse(build("last")), STATES[2])
    assert torch.allclose(
        fuse(build("mean")), (STATES[1] + STATES[2]) / 2
    )  # without the embeddings


def test_concat_is_one_linear_map_of_the_concatenation() -> None:
    fusion = build("concat")
    joined = torch.cat([fusion.weight[0], fusion.weight[1]], dim=1)  # (d, L·d)
    expected = joined @ torch.cat([STATES[1], STATES[2]])
    assert torch.allclose(fuse(fusion), expected, atol=1e-6)
    bound = 1 / math.sqrt(2 * 3)
    assert fusion.weight.abs().max() <= bound


def test_depth_wise_attention_by_the_papers_formulas() -> None:
    fusion = build("dwatt", width=4).double()
    states = torch.randn(3, 4, dtype=torch.float64)
    values = []
    for n in (1, 2):
        f = fusion.values[n - 1]
        inner = F.layer_norm(F.gelu(f.inner.weight @ states[n] + f.inner.bias), (2,))
        values.append(F.layer_norm(f.outer.weight @ inner, (4,)))
    f = fusion.query
    inner = F.layer_norm(F.gelu(f.inner.weight @ states[2] + f.inner.bias), (2,))
    query = 1 + F.elu(states[2] + f.outer.weight @ inner)
    keys = fusion.positions @ fusion.key.weight.T
    share = (keys @ query).softmax(0)
    expected = states[2] + share[0] * values[0] + share[1] * values[1]
    fusion.train().eval()
    assert torch.allclose(fuse(fusion, states), expected, atol=1e-9)
    assert torch.allclose(fusion.mixing_weights()[1:].double(), share.detach(), atol=1e-9)
    assert fusion.mixing_weights()[0] == 0


def test_every_layer_mixes_all_states_before() -> None:
    fusion = build("every_layer")
    assert [tuple(m.shape) for m in fusion.mixes] == [(1,), (2,), (3,)]
    for index, state in enumerate(STATES):  # starts as the identity
        assert torch.equal(fusion.on_state(index, state[None, None], never)[0, 0], state)
    with torch.no_grad():
        fusion.mixes[1].copy_(torch.tensor([2.0, 3.0]))
    fusion.on_state(0, STATES[0][None, None], never)
    mixed = fusion.on_state(1, STATES[1][None, None], never)[0, 0]
    assert torch.allclose(mixed, 2 * STATES[0] + 3 * STATES[1])


def test_skip_connections_open_from_the_last_to_the_first() -> None:
    fusion = bermo(norm="none", opening_share=0.5)
    expected = {
        0.0: [0, 0, 1],
        0.24: [0, 0, 1],
        0.25: [0, 2 / 7, 5 / 7],
        0.5: [1 / 8, 2 / 8, 5 / 8],
    }
    for progress, weights in expected.items():
        fusion.share_trained = progress
        assert torch.allclose(fusion.mixing_weights(), torch.tensor(weights, dtype=torch.float32))
    fusion.share_trained = 1.0
    assert torch.allclose(fusion.mixing_weights(), torch.tensor([1 / 8, 2 / 8, 5 / 8]))
    every = build("every_layer", opening_share=1.0)
    with torch.no_grad():
        every.mixes[2].fill_(1.0)
    for progress, share in ((0.0, [0, 0, 1]), (0.5, [0, 1, 1]), (1.0, [1, 1, 1])):
        every.share_trained = progress
        mixed = sum(w * s for w, s in zip(share, STATES, strict=True))
        assert torch.allclose(fuse(every), mixed)


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("last", 0),
        ("mean", 0),
        ("bermo", 24 + 2),
        ("every_layer", 25 * 26 // 2),
        ("concat", 25_165_824),  # the paper's 25.17 M
        ("dwatt", 26_326_528),  # 26.33 M
        ("extra_layers", 25_192_448),  # two layers: 25.19 M
    ],
)
def test_parameters_added_on_roberta_larges_shape(name: str, added: int) -> None:
    from transformers import RobertaConfig, RobertaModel

    config = RobertaConfig(
        vocab_size=50265, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=4096, max_position_embeddings=514,
    )  # fmt: skip
    with torch.device("meta"):
        model = RobertaModel(config)
        before = sum(p.numel() for p in model.parameters())
        attach_fusion(model, backbone.find_stack(model), spec.Fusion(name=name))
    assert sum(p.numel() for p in model.parameters()) - before == added


@pytest.mark.parametrize("norm", ["layer", "stack", "depth", "none"])
def test_gradients_equal_the_stacked_forms(norm: str) -> None:
    torch.manual_seed(2)
    states = torch.randn(5, 4, 6, 8).requires_grad_()
    settings = spec.Fusion.model_validate({"name": "bermo", "norm": norm, "dropout": 0.0})
    fusion = Bermo(settings, stack(4, 8))
    slope = torch.randn(4, 6, 8)
    for index, state in enumerate(states):
        out = fusion.on_state(index, state, never)
    (out * slope).sum().backward()
    streamed = [states.grad.clone(), fusion.alpha.grad.clone(), fusion.gamma.grad.clone()]
    states.grad = fusion.alpha.grad = fusion.gamma.grad = None
    axes = {"layer": (-1,), "stack": (0, -1), "depth": (0,), "none": None}[norm]
    z = states
    if axes:
        mean, var = states.mean(axes, keepdim=True), states.var(axes, correction=0, keepdim=True)
        z = (states - mean) / (var + 1e-5).sqrt()
    expected = fusion.gamma * torch.einsum("l,l...->...", fusion.alpha.softmax(0), z)
    assert torch.allclose(out, expected, atol=1e-5)
    mixed = bermo_mix(states, fusion.alpha, fusion.gamma, norm)
    assert torch.allclose(mixed, expected, atol=1e-5)
    (expected * slope).sum().backward()
    stacked = [states.grad, fusion.alpha.grad, fusion.gamma.grad]
    for a, b in zip(streamed, stacked, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_bermo_mix_by_hand() -> None:
    alpha = torch.tensor([0.0, math.log(2.0), math.log(5.0)])  # softmax: 1/8 2/8 5/8
    mixed = bermo_mix(STATES, alpha, 2.0, norm="none")
    assert torch.allclose(mixed, torch.tensor([-1.0, 3.25, 3.0]))
    raw = bermo_mix(STATES, torch.tensor([1.0, -1.0, 0.5]), norm="none", weighting="raw")
    assert torch.allclose(raw, torch.tensor([0.5, -0.5, 3.0]))
    assert not torch.equal(bermo_mix(STATES, alpha, dropout=0.9), bermo_mix(STATES, alpha))
    with pytest.raises(ValueError, match="got no states"):
        bermo_mix(STATES[:0], alpha[:0])


def test_depth_wise_attention_by_hand() -> None:
    # q·k = (ln 3, 0): attention ¾, ¼.
    query, keys = torch.tensor([math.log(3.0), 1.0]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    mix, attention = depth_wise_attention(query, keys, torch.tensor([[4.0, 0.0], [0.0, 8.0]]))
    assert torch.allclose(attention, torch.tensor([0.75, 0.25]))
    assert torch.allclose(mix, torch.tensor([3.0, 2.0]))


def test_a_fusion_is_added_with_one_method(monkeypatch: pytest.MonkeyPatch) -> None:
    class First(FusionModule):
        def on_state(self, index: int, state: torch.Tensor, call_layer: Any) -> torch.Tensor:
            self.first = state if index == 0 else self.first
            return self.first if index == self.depth else state

    monkeypatch.setitem(FUSIONS, "first", First)
    assert torch.equal(fuse(build("first")), STATES[0])
