import pytest

from bermo_ray.errors import UserError
from bermo_ray.models import layer_drop
from bermo_ray.models.backbone import stack
from bermo_ray.models.layer_drop import dropped
from bermo_ray.trial import LayerDrop


@pytest.mark.parametrize(
    ("strategy", "total", "count", "expected"),
    [
        ("top", 12, 4, [9, 10, 11, 12]),
        ("bottom", 12, 4, [1, 2, 3, 4]),
        ("alternate_even", 12, 4, [6, 8, 10, 12]),
        ("alternate_odd", 12, 4, [5, 7, 9, 11]),
        ("symmetric", 12, 2, [6, 7]),
        ("symmetric", 12, 6, [4, 5, 6, 7, 8, 9]),
        ("symmetric", 12, 3, [6, 7, 8]),  # 5 below, 4 above: the extra one stays at the bottom
        ("symmetric", 6, 0, []),
    ],
)
def test_the_papers_layer_sets(strategy: str, total: int, count: int, expected: list[int]) -> None:
    assert dropped(LayerDrop(strategy=strategy, count=count), total) == expected


def test_explicit_layers_go_as_named() -> None:
    assert dropped(LayerDrop(strategy="explicit", layers=(5, 2)), 6) == [2, 5]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (LayerDrop(strategy="tpo", count=1), "unknown layer_drop.strategy 'tpo': did you mean top"),
        (LayerDrop(strategy="top", count=6), "got 6, expected < 6 layers"),
        (LayerDrop(strategy="alternate_odd", count=4), "only 3 of 6 layers to drop"),
        (LayerDrop(strategy="explicit", layers=(0,)), "got 0, expected 1 <= layer <= 6"),
        (LayerDrop(strategy="explicit", layers=tuple(range(1, 7))), "all 6 layers would go"),
    ],
)
def test_bad_input_is_one_line(settings: LayerDrop, line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        dropped(settings, 6)
    assert line in str(caught.value)


def test_modernberts_kinds_of_layers_go_along() -> None:
    from transformers import ModernBertConfig, ModernBertModel

    small = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 12}
    config = ModernBertConfig(**small, num_hidden_layers=4, pad_token_id=0)
    kinds = list(config.layer_types)
    assert len(set(kinds)) == 2
    model = ModernBertModel(config)
    layer_drop.apply(stack(model), LayerDrop(strategy="explicit", layers=(2, 3)))
    assert model.config.layer_types == [kinds[0], kinds[3]]
    ModernBertConfig.from_dict(model.config.to_dict())  # a stock configuration
    with pytest.raises(UserError, match="keep layer 1"):
        layer_drop.apply(stack(model), LayerDrop(strategy="bottom", count=1))
