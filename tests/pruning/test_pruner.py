import math

import pytest
import torch
from torch import nn
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel, XLNetConfig, XLNetModel

from bermo_ray.errors import UserError
from bermo_ray.models import backbone
from bermo_ray.pruning.pruner import Count, Pruner, count, prunable
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import Pruning


def tiny_bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    return BertModel(config).eval()


def test_bert_bases_matrices_are_those_of_the_paper() -> None:
    with torch.device("meta"):
        model = BertModel(BertConfig())
    places = prunable(backbone.stack(model).modules)
    assert len(places) == 72
    assert sum(getattr(m, n).numel() for m, n in places) == 84_934_656
    encoder = sum(p.numel() for p in backbone.stack(model).modules.parameters())
    ten = Count(int(0.1 * 84_934_656), 84_934_656, encoder, 0, 0)
    assert f"{ten.remaining:.2%}" == "10.13%"
    assert f"{ten.density:.2%}" == "10.00%"


def test_bare_and_shared_parameters_are_found_once() -> None:
    small = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2}
    albert = AlbertModel(
        AlbertConfig(**small, embedding_size=4, num_hidden_layers=5, intermediate_size=16)
    )
    groups = albert.encoder.albert_layer_groups
    assert len(prunable(groups)) == 6
    xlnet = XLNetModel(XLNetConfig(vocab_size=11, d_model=8, n_layer=2, n_head=2, d_inner=16))
    names = [name for _, name in prunable(xlnet.layer)]
    assert {"q", "k", "v", "o", "r"} <= set(names)


def test_masks_stay_open_at_the_start_and_fold_to_a_stock_model() -> None:
    model = tiny_bert()
    ids = torch.tensor([[1, 2, 3, 4]])
    keys = set(model.state_dict())
    pruner = Pruner(Pruning(mask_start=9.0))
    pruner.attach(backbone.stack(model).modules)
    model.eval()
    with torch.no_grad():
        open_masks = model(ids).last_hidden_state
        for mask in pruner.masks:
            mask.scores.uniform_(-4, 4)
        pruned = model(ids).last_hidden_state
    before = count(model, backbone.stack(model).modules, pruner)
    pruner.fold()
    assert set(model.state_dict()) == keys
    assert torch.equal(model(ids).last_hidden_state, pruned)
    assert not torch.allclose(open_masks, pruned)
    assert count(model, backbone.stack(model).modules) == before


def test_counts_by_hand() -> None:
    model = tiny_bert()
    layers = backbone.stack(model).modules
    pruner = Pruner(Pruning())
    pruner.attach(layers)
    full = count(model, layers, pruner)
    matrices = 3 * (4 * 64 + 2 * 128)
    rest = 3 * (4 * 8 + 16 + 8 + 4 * 8)  # biases of q k v o, of both feed-forward; two norms
    assert (full.kept, full.prunable, full.encoder) == (matrices, matrices, matrices + rest)
    with torch.no_grad():
        pruner.masks[0].scores.view(-1)[:10] = -3.0  # below −ln 11: closed
    left = count(model, layers, pruner)
    assert left.kept == matrices - 10
    assert left.nonzero == full.nonzero - 10
    assert math.isclose(left.remaining, (matrices - 10 + rest) / (matrices + rest))
    assert left.total == full.total == sum(p.numel() for p in tiny_bert().parameters())


def test_penalty_is_a_mean_over_matrices_or_over_weights() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 6)])
    for kind, expected in (("matrix", 0.5), ("weight", 0.75)):
        pruner = Pruner(Pruning(penalty=kind))  # type: ignore[arg-type]
        pruner.attach(layers)
        with torch.no_grad():
            pruner.masks[0].scores.fill_(-50.0)
            pruner.masks[1].scores.fill_(50.0)
        assert math.isclose(pruner.penalty().item(), expected, abs_tol=1e-6)
        pruner.fold()


def test_a_masked_matrix_is_computed_once_an_evaluation() -> None:
    model = tiny_bert()
    pruner = Pruner(Pruning())
    pruner.attach(backbone.stack(model).modules)
    calls: list[int] = []
    for mask in pruner.masks:
        mask.register_forward_hook(lambda *_: calls.append(1))
    model.eval()
    with pruner.frozen():
        for _ in range(3):
            model(torch.tensor([[1, 2]]))
    assert len(calls) == 18


def test_calls_out_of_order_are_refused() -> None:
    pruner = Pruner(Pruning())
    schedule = Schedule(10, 1, 1.0, 1.0, 1, 1, 1.0)
    with pytest.raises(RuntimeError, match=r"step\(\) needs state 'attached', it is 'new'"):
        pruner.step(schedule, 1)
    pruner.attach(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(RuntimeError, match="attach"):
        pruner.attach(nn.ModuleList([nn.Linear(2, 2)]))
    pruner.fold()
    with pytest.raises(RuntimeError, match="it is 'folded'"):
        pruner.penalty()


def test_bad_input_is_one_line() -> None:
    with pytest.raises(UserError, match="unknown pruning.method 'lo': known: l0"):
        Pruner(Pruning(method="lo"))
    with pytest.raises(UserError, match="no weight matrix"):
        Pruner(Pruning()).attach(nn.ModuleList([nn.LayerNorm(3)]))
