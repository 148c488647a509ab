"""McNemar's test, by hand, and what is right in each kind of task."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results import mcnemar
from bermo_ray.results.significance import right_or_wrong
from bermo_ray.tasks import registry


def bits(text: str) -> np.ndarray:
    return np.array([digit == "1" for digit in text])


def test_mcnemar_by_hand() -> None:
    same = mcnemar(bits("1100"), bits("1100"))
    assert (same.only_first, same.only_second, same.p_value) == (0, 0, 1.0)
    # Six against one of seven: 2·(C(7,0) + C(7,1))/2^7.
    result = mcnemar(bits("1111110"), bits("0000001"))
    assert (result.only_first, result.only_second) == (6, 1)
    assert result.p_value == pytest.approx(2 * (1 + 7) / 2**7)
    with pytest.raises(UserError, match="2 examples against 3"):
        mcnemar(bits("10"), bits("101"))


def test_lists_are_flattened_and_rows_chosen() -> None:
    table = pa.table({"right": [[True, False], [], [False]]})
    flat = right_or_wrong(table)
    assert flat is not None
    assert flat.tolist() == [True, False, False]
    chosen = right_or_wrong(table, np.array([0, 1]))
    assert chosen is not None
    assert chosen.tolist() == [True, False]
    for nulls in (pa.nulls(2), pa.nulls(2, pa.bool_())):
        assert right_or_wrong(pa.table({"right": nulls})) is None


@pytest.mark.parametrize(
    ("task", "gold", "predicted", "expected"),
    [
        ("tense", [0, 1, 1], [0, 0, 1], [True, False, True]),
        ("entities", [[0, 1], [2]], [[0, 2], [2]], [True, False, True]),
        ("answer_span", [["the cat", "cat"], ["dog"]], ["Cat", "a cow"], [True, False]),
        ("similarity", [0.5], [0.5], None),
    ],
)
def test_what_is_right_in_each_kind_of_task(
    task: str, gold: list[Any], predicted: list[Any], expected: list[bool] | None
) -> None:
    right = registry.get_task(task).head.is_right(predicted, gold)
    column = pa.nulls(len(gold)) if right is None else pa.array(right)
    flat = right_or_wrong(pa.table({"right": column}))
    assert (None if flat is None else flat.tolist()) == expected
