import gc
import math
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel, XLNetConfig, XLNetModel
from transformers.models.bert.modeling_bert import BertLayer

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.pruning.pruner import Pruner, count, prunable
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import Pruning


def tiny_bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    return BertModel(config).eval()


def schedule(settings: Pruning, total: int = 10, warmup: int = 1) -> Schedule:
    return Schedule.of(settings, total, warmup)


def attached(layers: nn.ModuleList, **settings: Any) -> Pruner:
    chosen = Pruning(**settings)
    pruner = Pruner(chosen, schedule(chosen))
    pruner.attach(layers)
    return pruner


def scores(pruner: Pruner, place: int) -> torch.Tensor:
    found = pruner.matrices[place].scores
    assert found is not None
    return found.data


def test_bert_bases_matrices_are_those_of_the_paper() -> None:
    with torch.device("meta"):
        model = BertModel(BertConfig())
    matrices = prunable(backbone.stack(model).modules)
    assert len(matrices) == 72
    assert sum(p.numel() for p in matrices.values()) == 84_934_656
    assert "11.output.dense.weight" in matrices


def test_ten_percent_of_bert_base_reads_10_13() -> None:
    layers = nn.ModuleList([BertLayer(BertConfig()) for _ in range(12)])
    for method in ("movement", "magnitude"):
        pruner = attached(layers, method=method, initial_threshold=0.1, final_threshold=0.1)
        left = count(layers, layers, pruner)
        assert f"{left.remaining:.2%}" == "10.13%"
        assert left.kept == 12 * (4 * int(0.1 * 768 * 768) + 2 * int(0.1 * 768 * 3072))


def test_bare_and_shared_parameters_are_found_once() -> None:
    small = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2}
    albert = AlbertModel(
        AlbertConfig(**small, embedding_size=4, num_hidden_layers=5, intermediate_size=16)
    )
    groups = albert.encoder.albert_layer_groups
    assert len(prunable(groups)) == 6
    xlnet = XLNetModel(XLNetConfig(vocab_size=11, d_model=8, n_layer=2, n_head=2, d_inner=16))
    names = {name.rpartition(".")[2] for name in prunable(xlnet.layer)}
    assert {"q", "k", "v", "o", "r"} <= names
    assert not {n for n in names if n.endswith(("bias", "embed"))}


def test_only_what_the_pattern_matches_is_masked() -> None:
    layers = backbone.stack(tiny_bert()).modules
    assert len(prunable(layers, r"attention\.self")) == 9
    with pytest.raises(UserError, match=r"^pruning.only: 'qery' matches none of 18 matrices; one"):
        prunable(layers, "qery")


@pytest.mark.parametrize("method", ["magnitude", "movement", "soft_movement", "l0"])
def test_fold_leaves_a_stock_model_with_the_masks_in_it(method: str) -> None:
    model = tiny_bert()
    ids = torch.tensor([[1, 2, 3, 4]])
    layers = backbone.stack(model).modules
    keys, dense = set(model.state_dict()), model(ids).last_hidden_state
    thresholds = {} if method == "l0" else {"initial_threshold": 0.6, "final_threshold": 0.6}
    pruner = attached(layers, method=method, **thresholds)
    for score in pruner.scores():
        score.data.uniform_(-4, 4)
    assert torch.equal(model(ids).last_hidden_state, dense)  # outside, the model is dense
    with pruner.frozen():
        pruned = model(ids).last_hidden_state
    before = count(model, layers, pruner)
    assert 0.1 < before.density < 0.9
    pruner.fold()
    assert set(model.state_dict()) == keys
    assert torch.equal(model(ids).last_hidden_state, pruned)
    assert not torch.allclose(dense, pruned)
    assert count(model, layers) == before


def test_counts_by_hand() -> None:
    model = tiny_bert()
    layers = backbone.stack(model).modules
    pruner = attached(layers)
    full = count(model, layers, pruner)
    matrices = 3 * (4 * 64 + 2 * 128)
    rest = 3 * (4 * 8 + 16 + 8 + 4 * 8)  # biases of q k v o, of both feed-forward; two norms
    assert (full.kept, full.prunable, full.encoder) == (matrices, matrices, matrices + rest)
    scores(pruner, 0).view(-1)[:10] = -3.0  # below −ln 11: closed
    left = count(model, layers, pruner)
    assert left.kept == matrices - 10
    assert left.nonzero == full.nonzero - 10
    assert math.isclose(left.remaining, (matrices - 10 + rest) / (matrices + rest))
    assert left.total == full.total == sum(p.numel() for p in tiny_bert().parameters())
    assert pruner.kept()[0] == ("0.attention.self.query.weight", 54, 64)


def test_penalty_is_a_mean_over_matrices_or_over_weights() -> None:
    for method, weighting, expected in (
        ("l0", "matrix", 0.5), ("l0", "weight", 0.75),
        ("soft_movement", "matrix", 0.5), ("soft_movement", "weight", 0.75),
    ):  # fmt: skip
        layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 6)])
        tau = {} if method == "l0" else {"initial_threshold": 0.1, "final_threshold": 0.1}
        pruner = attached(layers, method=method, penalty=weighting, **tau)
        scores(pruner, 0).fill_(-50.0)
        scores(pruner, 1).fill_(50.0)
        assert math.isclose(pruner.penalty().item(), expected, abs_tol=1e-6)


@pytest.mark.parametrize("weighting", ["matrix", "weight"])
@pytest.mark.parametrize("method", ["l0", "soft_movement"])
def test_the_penaltys_gradient_is_autograds(method: str, weighting: str) -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 6)])
    tau = {} if method == "l0" else {"initial_threshold": 0.1, "final_threshold": 0.1}
    pruner = attached(layers, method=method, penalty=weighting, final_lambda=7.0, **tau)
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
    pruner = attached(
        nn.ModuleList([layer]), method="movement", initial_threshold=0.5, final_threshold=0.5
    )
    scores(pruner, 0).normal_()
    weight, kept = layer.weight.detach().clone(), pruner.method.opened
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


def test_masks_are_made_once_a_step_and_once_an_evaluation() -> None:
    model = tiny_bert()
    pruner = attached(backbone.stack(model).modules, method="l0")
    made: list[int] = []

    class Counting(type(pruner.method)):  # type: ignore[misc]
        def masked(self, matrix: Any, training: bool) -> torch.Tensor:
            made.append(1)
            return super().masked(matrix, training)  # type: ignore[no-any-return]

    pruner.method = Counting()
    with pruner.step(1):
        for _ in range(3):  # micro-batches
            model(torch.tensor([[1, 2]])).last_hidden_state.sum().backward()
    assert len(made) == 18
    with pruner.frozen():
        for _ in range(3):
            model(torch.tensor([[1, 2]]))
        count(model, backbone.stack(model).modules, pruner)
    assert len(made) == 36


def test_nothing_but_the_scores_outlives_a_step() -> None:
    layer = nn.Linear(64, 64)
    pruner = attached(
        nn.ModuleList([layer]), method="movement", initial_threshold=0.5, final_threshold=0.5
    )
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
    pruner = attached(nn.ModuleList([layer]))
    before = layer.weight.detach().clone()
    with pytest.raises(ZeroDivisionError), pruner.step(1):
        raise ZeroDivisionError
    assert torch.equal(layer.weight, before)


def test_scores_and_multipliers_come_back() -> None:
    first = attached(nn.ModuleList([nn.Linear(2, 3)]), target=0.5)
    scores(first, 0).normal_()
    first.learned += torch.tensor([3.0, 4.0])
    second = attached(nn.ModuleList([nn.Linear(2, 3)]), target=0.5)
    second.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
    assert torch.equal(scores(first, 0), scores(second, 0))
    assert second.learned.tolist() == [3.0, 4.0]
    with pytest.raises(RuntimeError, match="not those of these matrices"):
        first.load_state_dict({})


def test_the_multipliers_climb_while_too_much_is_kept() -> None:
    layer = nn.Linear(10, 10)
    settings = Pruning(target=0.5, multiplier_rate=100.0)
    pruner = Pruner(settings, schedule(settings))
    pruner.attach(nn.ModuleList([layer]))
    with pruner.step(10):  # the target is 0.5 by then, all is kept: a gap of ½, counted as 0.2
        layer(torch.ones(1, 10)).sum().backward()
    assert pruner.learned.tolist() == pytest.approx([10 * 0.2, 10 * 20 * 0.04])
    assert pruner.multiplier == pytest.approx(2 + 2 * 8 * 0.2)


def test_scores_settle_on_the_target_at_the_flat_end() -> None:
    settings = Pruning(target=0.3)
    pruner = Pruner(settings, schedule(settings))
    pruner.attach(nn.ModuleList([nn.Linear(100, 100)]))
    torch.manual_seed(0)
    scores(pruner, 0).normal_(-2.0)
    start = scores(pruner, 0).clone()
    pruner.now = 9  # the flat end is step 10
    pruner.settle(1.0)
    assert torch.equal(scores(pruner, 0), start)
    pruner.now = 10
    pruner.settle(0.01)
    assert torch.allclose(scores(pruner, 0), start - 0.01) or torch.allclose(
        scores(pruner, 0), start + 0.01
    )
    pruner.settle(5.0)
    assert abs(pruner.kept()[0].kept - 3000) <= 1


def test_calls_out_of_order_are_refused() -> None:
    pruner = Pruner(Pruning(), schedule(Pruning()))
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
        Pruner(Pruning(method="lo"), schedule(Pruning()))
    with pytest.raises(UserError, match="no weight matrix"):
        attached(nn.ModuleList([nn.LayerNorm(3)]))
