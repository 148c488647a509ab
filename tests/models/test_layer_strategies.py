import subprocess
import sys

import pytest

from bermo_ray.errors import UserError
from bermo_ray.models.layer_strategies import (
    POSITIONAL,
    dropping_order,
    layers_due,
    most_droppable,
)
from bermo_ray.trial import LayerDrop


def dropped(settings: LayerDrop, total: int) -> list[int]:
    return sorted(dropping_order(settings, total))


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


# Every set by its definition in docs/methods.md §3, spelled another way than in the code.
@pytest.mark.parametrize("total", [6, 12, 24])
def test_every_set_of_every_count(total: int) -> None:
    layers = list(range(1, total + 1))
    for count in range(total):
        kept = total - count
        expected = {
            "top": layers[kept:],
            "bottom": layers[:count],
            "alternate_even": [i for i in layers if i % 2 == 0 and i > total - 2 * count],
            "alternate_odd": [i for i in layers if i % 2 == 1 and i > total - 2 * count],
            "symmetric": layers[kept - kept // 2 : total - kept // 2],
        }
        for strategy, layers_dropped in expected.items():
            settings = LayerDrop(strategy=strategy, count=count)
            if count > most_droppable(strategy, total):
                assert strategy.startswith("alternate")
                assert count > total // 2
                with pytest.raises(UserError, match=f"only {total // 2} of {total} layers"):
                    dropping_order(settings, total)
            else:
                assert dropped(settings, total) == layers_dropped, (strategy, count)


@pytest.mark.parametrize("strategy", POSITIONAL)
def test_one_more_layer_goes_on_top_of_those_before(strategy: str) -> None:
    longest = dropping_order(LayerDrop(strategy=strategy, count=most_droppable(strategy, 12)), 12)
    for count in range(len(longest)):
        assert dropping_order(LayerDrop(strategy=strategy, count=count), 12) == longest[:count]


# The paper's own figures: what it says was dropped, from scores that lead to it (§5.1).
def test_scores_rank_as_in_the_paper() -> None:
    rank = [1, 12, 8, 9, 11, 2]  # BERT, by variance, the first to go first
    variance = [rank.index(i) if i in rank else 50.0 + i for i in range(1, 13)]
    settings = LayerDrop(strategy="variance", count=6)
    assert dropping_order(settings, 12, variance) == rank
    similar = {3: 0.96, 5: 0.97, 8: 0.93, 9: 0.94}
    cosines = [similar.get(i, 0.8) for i in range(1, 13)]
    for threshold, expected in ((0.95, [3, 5]), (0.925, [3, 5, 8, 9]), (0.98, [])):
        order = dropping_order(LayerDrop(strategy="contribution", threshold=threshold), 12, cosines)
        assert sorted(order) == expected
    assert dropping_order(LayerDrop(strategy="contribution", count=3), 12, cosines) == [5, 3, 9]
    # A similarity that only equals the threshold does not exceed it.
    assert dropping_order(LayerDrop(strategy="contribution", threshold=0.96), 12, cosines) == [5]


def test_of_equal_scores_the_higher_layer_goes_first() -> None:
    assert dropping_order(LayerDrop(strategy="aggregate", count=2), 4, [1.0] * 4) == [4, 3]


def test_a_threshold_that_drops_everything_is_one_line() -> None:
    with pytest.raises(UserError, match="^layer_drop.threshold: all 3 layers exceed 0.5; the least similar has 0.6000$"):  # fmt: skip # noqa: E501
        dropping_order(LayerDrop(strategy="contribution", threshold=0.5), 3, [0.9, 0.6, 0.7])


def test_gradually_one_layer_goes_each_time() -> None:
    settings = LayerDrop(strategy="top", count=3, epochs_per_layer=2)
    order = dropping_order(settings, 12)
    assert [list(layers_due(settings, order, epochs)) for epochs in (0, 1, 2, 3, 4, 6, 9)] == [
        [], [], [12], [12], [12, 11], [12, 11, 10], [12, 11, 10],
    ]  # fmt: skip
    assert layers_due(LayerDrop(strategy="top", count=3), order, 0) == [12, 11, 10]


def test_explicit_layers_go_as_named() -> None:
    assert dropped(LayerDrop(strategy="explicit", dropped_layers=(5, 2)), 6) == [2, 5]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (LayerDrop(strategy="tpo", count=1), "unknown layer_drop.strategy 'tpo': did you mean top"),
        (LayerDrop(strategy="top", count=6), "got 6, expected < 6 layers"),
        (LayerDrop(strategy="alternate_odd", count=4), "only 3 of 6 layers to drop"),
        (LayerDrop(strategy="explicit", dropped_layers=(0,)), "got 0, expected 1 <= layer <= 6"),
        (
            LayerDrop(strategy="explicit", dropped_layers=tuple(range(1, 7))),
            "all 6 layers would go",
        ),
    ],
)
def test_bad_input_is_one_line(settings: LayerDrop, line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        dropped(settings, 6)
    assert line in str(caught.value)


def test_strategies_need_no_torch() -> None:
    code = "import sys, bermo_ray.models.layer_strategies; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
