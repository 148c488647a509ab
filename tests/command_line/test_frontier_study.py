"""What the frontier studies print of a comparison, and where they look."""

import pyarrow as pa
import pytest

from bermo_ray.command_line.frontier_study import (
    FrontierOptions,
    _compare_with_match,
    make_space,
)
from bermo_ray.errors import UserError
from bermo_ray.trial import L0, Movement, SoftMovement
from tests.support.result_rows import seeded

ANSWERS = pa.table({"fusion": ["last", "bermo"], "target_metric": [0.8, 0.8]})


def arm(fusion: str, sizes: list[float]) -> pa.Table:
    rows = [(f"recipe of {fusion}", seed, size, 0.8) for seed, size in enumerate(sizes)]
    return seeded(rows, fusion=fusion, method="l0", task="t", backbone="b")


@pytest.mark.parametrize(
    ("last", "bermo", "line"),
    [
        (
            [0.3, 0.32, 0.28],
            [0.2, 0.21, 0.25],
            "at 0.8000 bermo needs 1/1.37 of last's weights (95 % over 3 seeds: 1.08 to 1.74)",
        ),
        ([0.3], [0.2], "at 0.8000 bermo needs 1/1.50 of last's weights (one seed, so no interval)"),
        (
            [0.3, 0.32],
            [0.2],
            "at 0.8000: no comparison; seeds: one has 0, 1, the other 0; compare what was run with "
            "the same",
        ),
    ],
)
def test_a_comparison_is_one_line(last: list[float], bermo: list[float], line: str) -> None:
    table = pa.concat_tables([arm("last", last), arm("bermo", bermo)])
    assert _compare_with_match("last", table, ANSWERS) == [line]
    assert _compare_with_match(None, table, ANSWERS) == []


def test_ranges_are_what_is_recommended_unless_given() -> None:
    space = make_space(FrontierOptions(), L0())
    ends = {key: (span.low, span.high) for key, span in space.ranges.items()}
    assert ends == {
        "pruning__multiplier": (1.0, 40.0),
        "optimizer__learning_rate": (3e-4, 1.5e-3),
        "optimizer__score_learning_rate": (4e-2, 1.2e-1),
    }
    own = make_space(FrontierOptions(multipliers=(2.0, 3.0)), SoftMovement())
    assert own.ranges["pruning__multiplier"].high == 3.0
    assert own.ranges["optimizer__score_learning_rate"].low == 2e-2
    with pytest.raises(UserError, match="^unknown question 'movement'"):
        make_space(FrontierOptions(), Movement())
