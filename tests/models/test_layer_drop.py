import torch

from bermo_ray.models import layer_drop
from bermo_ray.models.assembly import assemble
from bermo_ray.models.backbone import find_stack
from bermo_ray.trial import Fusion


def test_weight_scores_by_hand() -> None:
    from transformers import BertConfig, BertModel

    network = BertModel(BertConfig(hidden_size=4, num_attention_heads=1, intermediate_size=2,
                                 num_hidden_layers=2, vocab_size=10))  # fmt: skip
    first, second = (layer.output.dense.weight for layer in network.encoder.layer)
    torch.nn.init.constant_(first, 2.0)
    first.data[0, 0] = -6.0  # of 8 values: seven 2s and a −6: mean 1, variance 56/8 = 7, sum 20
    torch.nn.init.constant_(second, -3.0)
    scores = layer_drop.weight_scores(find_stack(network))
    assert scores == {"variance": [7.0, 0.0], "aggregate": [20.0, 24.0]}


def test_modernberts_kinds_of_layers_go_along() -> None:
    from transformers import ModernBertConfig, ModernBertModel

    small = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 12}
    config = ModernBertConfig(**small, num_hidden_layers=4, pad_token_id=0)
    kinds = list(config.layer_types)
    assert len(set(kinds)) == 2
    network = ModernBertModel(config)
    model = assemble(network, Fusion())
    model.remove_layers([2, 3])
    assert model.layers_left == [1, 4]
    assert network.config.layer_types == [kinds[0], kinds[3]]
    ModernBertConfig.from_dict(network.config.to_dict())  # a stock configuration
    assert len(network.layers) == 2
    assert "keep layer 1" in str(layer_drop.find_problem(network.config, [1]))
    assert layer_drop.find_problem(network.config, [2]) is None
