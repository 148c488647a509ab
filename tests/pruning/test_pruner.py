import gc
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel, XLNetConfig, XLNetModel

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.pruning import masks
from bermo_ray.pruning.counting import count_parameters
from bermo_ray.pruning.joining import join
from bermo_ray.pruning.pruner import Pruner, density_gap, prunable_matrices
from bermo_ray.trial import (
    L0,
    PRUNING_SETTINGS,
    Magnitude,
    Movement,
    Pruning,
    Trial,
)
from tests.support.pruners import attached, penalized, schedule, scores, tiny_bert


def test_bert_bases_matrices_are_those_of_the_paper() -> None:
    with torch.device("meta"):
        model = BertModel(BertConfig())
    matrices = prunable_matrices(backbone.find_stack(model).modules)
    assert len(matrices) == 72
    assert sum(p.numel() for p in matrices.values()) == 84_934_656
    assert "11.output.dense.weight" in matrices


def test_bare_and_shared_parameters_are_found_once() -> None:
    small = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2}
    albert = AlbertModel(
        AlbertConfig(**small, embedding_size=4, num_hidden_layers=5, intermediate_size=16)
    )
    groups = albert.encoder.albert_layer_groups
    assert len(prunable_matrices(groups)) == 6
    xlnet = XLNetModel(XLNetConfig(vocab_size=11, d_model=8, n_layer=2, n_head=2, d_inner=16))
    names = {name.rpartition(".")[2] for name in prunable_matrices(xlnet.layer)}
    assert {"q", "k", "v", "o", "r"} <= names
    assert not {n for n in names if n.endswith(("bias", "embed"))}


def test_only_what_the_pattern_matches_is_masked() -> None:
    layers = backbone.find_stack(tiny_bert()).modules
    assert len(prunable_matrices(layers, r"attention\.self")) == 9
    with pytest.raises(
        UserError, match=r"^pruning.name_pattern: 'qery' matches none of 18 matrices; one"
    ):
        prunable_matrices(layers, "qery")


@pytest.mark.parametrize(
    "settings",
    [
        Magnitude(initial_density=0.6, final_density=0.6),
        Movement(initial_density=0.6, final_density=0.6),
        penalized("soft_movement", 0.6),
        L0(),
    ],
    ids=lambda settings: settings.method,
)
def test_fold_leaves_a_stock_model_with_the_masks_in_it(settings: Pruning) -> None:
    model = tiny_bert()
    ids = torch.tensor([[1, 2, 3, 4]])
    layers = backbone.find_stack(model).modules
    keys, dense = set(model.state_dict()), model(ids).last_hidden_state
    pruner = attached(layers, settings)
    for score in pruner.scores():
        score.data.uniform_(-4, 4)
    assert torch.equal(model(ids).last_hidden_state, dense)  # outside, the model is dense
    with pruner.frozen():
        pruned = model(ids).last_hidden_state
    before = count_parameters(model, layers, pruner)
    assert 0.1 < before.density < 0.9
    pruner.fold()
    assert set(model.state_dict()) == keys
    assert torch.equal(model(ids).last_hidden_state, pruned)
    assert not torch.allclose(dense, pruned)
    assert count_parameters(model, layers) == before


def test_penalty_is_a_mean_over_matrices_or_over_weights() -> None:
    for method, weighting, expected in (
        ("l0", "matrix", 0.5), ("l0", "weight", 0.75),
        ("soft_movement", "matrix", 0.5), ("soft_movement", "weight", 0.75),
    ):  # fmt: skip
        layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 6)])
        pruner = attached(layers, penalized(method, penalty=weighting))
        scores(pruner, 0).fill_(-50.0)
        scores(pruner, 1).fill_(50.0)
        assert math.isclose(pruner.penalty().item(), expected, abs_tol=1e-6)


@pytest.mark.parametrize("weighting", ["matrix", "weight"])
@pytest.mark.parametrize("method", ["l0", "soft_movement"])
def test_the_penaltys_gradient_is_autograds(method: str, weighting: str) -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 6)])
    pruner = attached(layers, penalized(method, penalty=weighting, multiplier=7.0))
    for score in pruner.scores():
        score.data.normal_()
    (7.0 * pruner.penalty()).backward()
    expected = [score.grad for score in pruner.scores()]
    with pruner.step(5):  # a loss of 0: the penalty's gradient alone
        sum(layer(torch.ones(1, 2)).sum() * 0 for layer in layers).backward()  # type: ignore[union-attr]
    for score, by_autograd in zip(pruner.scores(), expected, strict=True):
        assert score.grad is not None
        assert by_autograd is not None
        assert torch.allclose(score.grad, by_autograd, atol=1e-7)


def test_a_step_gives_the_straight_through_gradients_and_the_dense_weights_back() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 4), torch.randn(5, 6)
    settings = Movement(initial_density=0.5, final_density=0.5)
    pruner = attached(nn.ModuleList([layer]), settings)
    scores(pruner, 0).normal_()
    weight, kept = layer.weight.detach().clone(), pruner.method.kept_mask
    with pruner.step(5):
        assert int(layer.weight.count_nonzero()) == 12
        layer(x).square().sum().backward()
    mask = kept(pruner.matrices[0]).float()
    form = (weight * mask).requires_grad_()
    (x @ form.T + layer.bias.detach()).square().sum().backward()
    assert form.grad is not None
    assert torch.equal(layer.weight, weight)
    assert torch.allclose(layer.weight.grad, form.grad * mask, atol=1e-5)  # type: ignore[arg-type]
    of_scores = pruner.scores()[0].grad
    assert of_scores is not None
    assert torch.allclose(of_scores, form.grad * weight, atol=1e-5)


def test_masks_are_made_once_per_step_and_once_per_evaluation() -> None:
    model = tiny_bert()
    pruner = attached(backbone.find_stack(model).modules, L0())
    calls: list[int] = []

    class Counting(masks.L0Mask):
        def masked_weight(self, matrix: masks.Matrix, training: bool) -> torch.Tensor:
            calls.append(1)
            return super().masked_weight(matrix, training)

    pruner.method = Counting(L0())
    with pruner.step(1):
        for _ in range(3):  # micro-batches
            model(torch.tensor([[1, 2]])).last_hidden_state.sum().backward()
    assert len(calls) == 2  # twelve matrices of one size are as one, six of another
    with pruner.frozen():
        for _ in range(3):
            model(torch.tensor([[1, 2]]))
        count_parameters(model, backbone.find_stack(model).modules, pruner)
    assert len(calls) == 2 + 18  # by themselves, because what is evaluated may be saved


def test_joined_matrices_have_the_masks_and_gradients_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same noise for every weight. Vector and scalar instructions, which do the rest of a
    tensor, differ in the last bit."""
    monkeypatch.setattr(masks, "random_like", lambda x: torch.full(x.shape, 0.3))
    results = []
    for elementwise in (True, False):
        torch.manual_seed(0)
        shapes = ((3, 4), (4, 3), (5, 2), (2, 6), (4, 3))
        layers = nn.ModuleList([nn.Linear(inputs, outputs) for inputs, outputs in shapes])
        pruner = attached(layers, penalized("l0", multiplier=7.0))
        monkeypatch.setattr(pruner.method, "elementwise", elementwise)
        for score in pruner.scores():
            score.data.normal_(std=3.0)
        with pruner.step(5):
            forms = [layer.weight.detach().clone() for layer in layers]  # type: ignore[arg-type,union-attr,operator]
            for layer in layers[:4]:  # the last one gets no gradient
                layer(torch.ones(1, layer.in_features)).square().sum().backward()  # type: ignore[arg-type]
        of_weights = [layer.weight.grad for layer in layers]
        results.append((forms, of_weights, [score.grad for score in pruner.scores()]))
    assert results[0][1][-1] is None
    assert results[0][2][-1] is None
    for joined, apart in zip(*results, strict=True):
        for a, b in zip(joined, apart, strict=True):
            assert (a is None and b is None) or torch.allclose(a, b, rtol=1e-5, atol=1e-7)  # type: ignore[arg-type]


def test_as_many_matrices_are_joined_as_a_cache_holds() -> None:
    def matrix(*shape: int) -> masks.Matrix:
        return masks.Matrix("m", torch.zeros(shape), torch.zeros(shape))

    half = masks.BLOCK_NUMBERS // 2
    small, large = [matrix(half // 4, 2) for _ in range(5)], matrix(half + 1, 1)
    groups = [group.members for group in join([small[0], large, *small[1:], large])]
    assert groups == [small[:4], [large], small[4:], [large]]
    assert join([large])[0].matrix is large


def test_nothing_but_the_scores_outlives_a_step() -> None:
    layer = nn.Linear(64, 64)
    settings = Movement(initial_density=0.5, final_density=0.5)
    pruner = attached(nn.ModuleList([layer]), settings)
    with pruner.step(1):
        layer(torch.ones(1, 64)).sum().backward()
    layer.zero_grad()
    pruner.scores()[0].grad = None
    gc.collect()
    large = {
        t.data_ptr()
        for t in gc.get_objects()
        if isinstance(t, torch.Tensor) and t.shape == (64, 64)
    }
    assert large == {layer.weight.data_ptr(), pruner.scores()[0].data_ptr()}


def test_a_step_that_breaks_leaves_the_weights() -> None:
    layer = nn.Linear(3, 3)
    pruner = attached(nn.ModuleList([layer]), L0())
    before = layer.weight.detach().clone()
    with pytest.raises(ZeroDivisionError), pruner.step(1):
        raise ZeroDivisionError
    assert torch.equal(layer.weight, before)


def test_scores_and_multipliers_come_back() -> None:
    first = attached(nn.ModuleList([nn.Linear(2, 3)]), L0(target_density=0.5))
    scores(first, 0).normal_()
    first.multipliers += torch.tensor([3.0, 4.0])
    first.now = 10
    first.shift_scores_to_density(0.0)
    second = attached(nn.ModuleList([nn.Linear(2, 3)]), L0(target_density=0.5))
    second.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
    assert torch.equal(scores(first, 0), scores(second, 0))
    assert second.multipliers.tolist() == [3.0, 4.0]
    assert second.density_before_shift == first.density_before_shift
    assert 0 <= first.density_before_shift <= 1
    older = {k: v for k, v in first.state_dict().items() if k != "density_before_shift"}
    second.load_state_dict(older)  # of a checkpoint that does not have it
    assert math.isnan(second.density_before_shift)
    with pytest.raises(RuntimeError, match="not those of these matrices"):
        first.load_state_dict({})


def test_the_multipliers_climb_while_too_much_is_kept() -> None:
    layer = nn.Linear(10, 10)
    settings = L0(target_density=0.5, multiplier_rate=100.0)
    pruner = Pruner(settings, schedule(settings))
    pruner.attach(nn.ModuleList([layer]))
    with pruner.step(10):  # the target is 0.5 by then, all is kept: a gap of ½, counted as 0.2
        layer(torch.ones(1, 10)).sum().backward()
    assert pruner.multipliers.tolist() == pytest.approx([10 * 0.2, 10 * 20 * 0.04])
    assert pruner.multiplier == pytest.approx(2 + 2 * 8 * 0.2)


@pytest.mark.parametrize(
    ("density", "asked", "gap", "slope"),
    [
        (0.55, 0.5, 0.05 / 0.55, 0.5 / 0.55**2),  # above: D*/D²
        (0.45, 0.5, -0.1, 1 / 0.5),  # below: 1/D*
        (1.0, 0.5, 0.2, 0.0),  # beyond the clamp
        (0.1, 0.5, -0.2, 0.0),
    ],
)
def test_the_multiplier_is_the_lagrangians_derivative_by_the_gap(
    density: float, asked: float, gap: float, slope: float
) -> None:
    """And not by the density, which would have the factor ∂gap/∂density besides."""
    first, second = 3.0, 40.0

    def lagrangian(gap: float) -> float:
        return first * gap + second * gap**2

    def slope_of(function: Callable[[float], float], at: float) -> float:
        return (function(at + 1e-6) - function(at - 1e-6)) / 2e-6

    assert density_gap(density, asked) == pytest.approx(gap)
    pruner = attached(nn.ModuleList([nn.Linear(2, 2)]), L0(target_density=0.5))
    pruner.multipliers += torch.tensor([first, second])
    learned = pruner._learned_multiplier(density_gap(density, asked))
    assert learned == pytest.approx(slope_of(lagrangian, gap), rel=1e-6)
    by_density = slope_of(lambda d: lagrangian(density_gap(d, asked)), density)
    assert by_density == pytest.approx(learned * slope, rel=1e-5)


def test_the_density_before_the_first_shift_is_kept() -> None:
    settings = L0(target_density=0.3)
    pruner = Pruner(settings, schedule(settings))
    pruner.attach(nn.ModuleList([nn.Linear(100, 100)]))
    threshold = math.log(0.1 / 1.1)  # L0 keeps what is above it
    scores(pruner, 0).fill_(threshold - 0.5)
    scores(pruner, 0)[:45].fill_(threshold + 0.5)
    pruner.now = 9  # the flat end is step 10
    pruner.shift_scores_to_density(5.0)
    assert math.isnan(pruner.density_before_shift)
    pruner.now = 10
    for _ in range(3):
        scores(pruner, 0).add_(torch.linspace(0, 1e-3, 10_000).view(100, 100))
        pruner.shift_scores_to_density(5.0)
        assert pruner.density_before_shift == 0.45
    assert abs(pruner.kept_by_matrix()[0].kept - 3000) <= 1
    fixed = attached(nn.ModuleList([nn.Linear(4, 4)]), L0())
    fixed.now = 10
    fixed.shift_scores_to_density(5.0)
    assert math.isnan(fixed.density_before_shift)  # no density was asked for


def test_scores_are_shifted_to_the_target_in_the_flat_end() -> None:
    settings = L0(target_density=0.3)
    pruner = Pruner(settings, schedule(settings))
    pruner.attach(nn.ModuleList([nn.Linear(100, 100)]))
    torch.manual_seed(0)
    scores(pruner, 0).normal_(-2.0)
    start = scores(pruner, 0).clone()
    pruner.now = 9  # the flat end is step 10
    pruner.shift_scores_to_density(1.0)
    assert torch.equal(scores(pruner, 0), start)
    pruner.now = 10
    pruner.shift_scores_to_density(0.01)
    assert torch.allclose(scores(pruner, 0), start - 0.01) or torch.allclose(
        scores(pruner, 0), start + 0.01
    )
    pruner.shift_scores_to_density(5.0)
    assert abs(pruner.kept_by_matrix()[0].kept - 3000) <= 1


def test_calls_out_of_order_are_refused() -> None:
    pruner = Pruner(L0(), schedule(L0()))
    with (
        pytest.raises(RuntimeError, match=r"step\(\) needs state 'attached', it is 'new'"),
        pruner.step(1),
    ):
        pass
    pruner.attach(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(RuntimeError, match="attach"):
        pruner.attach(nn.ModuleList([nn.Linear(2, 2)]))
    pruner.fold()
    with pytest.raises(RuntimeError, match="it is 'folded'"):
        pruner.penalty()


def test_bad_input_is_one_line() -> None:
    with pytest.raises(UserError, match="unknown pruning.method 'lo': known: "):
        Pruner(Pruning(method="lo"), schedule(L0()))
    with pytest.raises(UserError, match="no weight matrix"):
        attached(nn.ModuleList([nn.LayerNorm(3)]), L0())


@pytest.mark.parametrize("settings", [Magnitude(), Movement()], ids=lambda s: s.method)
def test_ranked_methods_have_no_multiplier(settings: Pruning) -> None:
    pruner = attached(nn.ModuleList([nn.Linear(4, 4)]), settings)
    assert pruner.multiplier == pruner.update_multiplier() == 0.0
    assert pruner.penalty() == 0


def test_what_was_removed_is_forgotten_and_the_rest_keeps_its_name() -> None:
    modules = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 3)])
    pruner = attached(modules, L0())
    del modules[0]
    pruner.forget_removed(modules)
    assert [m.name for m in pruner.matrices] == ["1.weight"]
    assert [tuple(s.shape) for s in pruner.scores()] == [(3, 2)]


class SmallestSettings(Pruning):
    method: str = "smallest"
    final_density: float = 0.5

    @property
    def schedule_ends(self) -> tuple[float, float]:
        return 1.0, self.final_density


class Smallest(masks.MagnitudeMask):
    """Keeps the smallest weights: a method that a user adds."""

    def update(self, matrices: Any, threshold: float) -> None:
        for m in matrices:
            m.cut, (m.ties,) = masks.top_cut([-m.weight.detach().abs()], int(threshold * m.size))

    def mask_source(self, matrix: masks.Matrix, dense: torch.Tensor) -> torch.Tensor:
        return -dense.abs()


def test_a_method_is_added_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRUNING_SETTINGS, "smallest", SmallestSettings)
    monkeypatch.setitem(masks.METHODS, "smallest", Smallest)
    trial = Trial.from_dict({"pruning": {"method": "smallest", "final_density": 0.25}})
    assert Trial.from_json(trial.to_json()) == trial
    assert trial.pruning is not None
    layer = nn.Linear(8, 1)
    layer.weight.data = torch.arange(1.0, 9.0)[None]
    pruner = attached(nn.ModuleList([layer]), trial.pruning)
    pruner.now = 10
    pruner.fold()
    assert layer.weight.tolist() == [[1, 2, 0, 0, 0, 0, 0, 0]]
