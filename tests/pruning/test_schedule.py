import math

import pytest

from bermo_ray.pruning.schedule import Schedule


def schedule(**changes: object) -> Schedule:
    values = {
        "total": 100, "warmup": 10, "initial": 1.0, "final": 0.1, "flat_start": 1, "flat_end": 2,
        "final_lambda": 50.0,
    } | changes  # fmt: skip
    return Schedule(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 1.0),
        (10, 1.0),  # t = iw·w is still flat
        (11, 0.1 + 0.9 * (1 - 1 / 70) ** 3),
        (45, 0.1 + 0.9 * 0.125),  # half way: c = ½
        (80, 0.1),  # t = T − fw·w: c = 0
        (81, 0.1),
        (100, 0.1),
    ],
)
def test_threshold_at_its_corners(step: int, expected: float) -> None:
    assert math.isclose(schedule().threshold(step), expected)


def test_lambda_follows_the_threshold() -> None:
    assert math.isclose(schedule().multiplier(5), 50.0 * 1.0 / 0.1)
    assert math.isclose(schedule().multiplier(100), 50.0)


def test_l0s_lambda_is_constant() -> None:
    l0 = schedule(initial=1.0, final=1.0)
    assert {l0.multiplier(t) for t in range(1, 101)} == {50.0}


def test_a_schedule_that_never_prunes_names_its_four_numbers() -> None:
    assert schedule().problem() is None
    assert schedule(total=31).problem() is None
    line = schedule(total=30).problem()
    assert line is not None
    for number in ("initial_warmup=1", "final_warmup=2", "warmup=10", "total=30"):
        assert number in line
