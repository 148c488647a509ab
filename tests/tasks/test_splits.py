"""The two halves of a dev set."""

import numpy as np
import pytest

from bermo_ray.tasks.heads import HEADS
from bermo_ray.tasks.splits import split_halves


@pytest.mark.parametrize("count", [0, 1, 2, 9, 100, 277])
def test_halves_share_nothing_and_the_first_has_the_odd_row(count: int) -> None:
    first, second = split_halves(count)
    assert (len(first), len(second)) == ((count + 1) // 2, count // 2)
    assert sorted([*first, *second]) == list(range(count))
    for half in (first, second):
        assert half.tolist() == sorted(half)


def test_halves_are_the_same_every_time_and_not_in_order() -> None:
    first, second = split_halves(12)
    assert first.tolist() == split_halves(12)[0].tolist() == [0, 5, 6, 7, 8, 9]
    assert not set(first) <= set(range(0, 12, 2))  # the rows' order has nothing to do with it
    by_class = split_halves(12, [0] * 12)
    assert [half.tolist() for half in by_class] == [first.tolist(), second.tolist()]


def test_each_class_is_split_evenly() -> None:
    counts = [30, 25, 44, 1]
    classes = np.repeat(range(4), counts)
    np.random.default_rng(5).shuffle(classes)
    first, second = split_halves(100, classes)
    assert (len(first), len(second)) == (50, 50)
    assert sorted([*first, *second]) == list(range(100))
    in_first, in_second = (np.bincount(classes[half], minlength=4) for half in (first, second))
    assert (in_first + in_second).tolist() == counts
    assert np.abs(in_first - in_second).tolist() == [0, 1, 0, 1]
    # Without classes, chance decides.
    by_chance = np.bincount(classes[split_halves(100)[0]], minlength=4)
    assert np.abs(2 * by_chance - counts).max() > 1


def test_an_odd_row_is_the_first_halfs_whatever_the_classes() -> None:
    for classes in ([0, 1, 2], [2, 1, 0], [0, 0, 1], [1, 1, 1]):
        first, second = split_halves(3, classes)
        assert (len(first), len(second)) == (2, 1)


def test_only_rows_with_one_class_have_classes() -> None:
    gold = [2, 0, 1]
    classes = {name: head.row_classes(gold) for name, head in HEADS.items()}
    assert {name for name, of_rows in classes.items() if of_rows is not None} == {"sequence"}
    assert classes["sequence"] == gold
