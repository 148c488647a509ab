import math

from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from bermo_ray.models import backbone
from bermo_ray.pruning.counting import count_parameters
from bermo_ray.trial import L0, Magnitude, Movement
from tests.support.pruners import attached, scores, tiny_bert


def test_ten_percent_of_bert_base_reads_10_13() -> None:
    layers = nn.ModuleList([BertLayer(BertConfig()) for _ in range(12)])
    for kind in (Movement, Magnitude):
        pruner = attached(layers, kind(initial_density=0.1, final_density=0.1))
        count = count_parameters(layers, layers, pruner)
        assert f"{count.remaining:.2%}" == "10.13%"
        assert count.kept == 12 * (4 * int(0.1 * 768 * 768) + 2 * int(0.1 * 768 * 3072))


def test_counts_by_hand() -> None:
    model = tiny_bert()
    layers = backbone.find_stack(model).modules
    pruner = attached(layers, L0())
    full = count_parameters(model, layers, pruner)
    matrices = 3 * (4 * 64 + 2 * 128)
    rest = 3 * (4 * 8 + 16 + 8 + 4 * 8)  # biases of q k v o, of both feed-forward; two norms
    assert (full.kept, full.prunable, full.encoder) == (matrices, matrices, matrices + rest)
    scores(pruner, 0).view(-1)[:10] = -3.0  # below −ln 11: closed
    count = count_parameters(model, layers, pruner)
    assert count.kept == matrices - 10
    assert count.nonzero == full.nonzero - 10
    assert math.isclose(count.remaining, (matrices - 10 + rest) / (matrices + rest))
    assert count.total == full.total == sum(p.numel() for p in tiny_bert().parameters())
    assert pruner.kept_by_matrix()[0] == ("0.attention.self.query.weight", 54, 64)
