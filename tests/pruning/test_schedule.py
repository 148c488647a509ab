import math

import pytest

from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import L0, Movement, SoftMovement


def schedule(**changes: object) -> Schedule:
    values = {
        "total": 100, "warmup": 10, "initial": 1.0, "final": 0.1, "flat_start": 1, "flat_end": 2,
        "final_multiplier": 50.0,
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
    assert schedule().find_problem() is None
    assert schedule(total=31).find_problem() is None
    line = schedule(total=30).find_problem()
    assert line is not None
    for number in ("flat_start=1", "flat_end=2", "warmup=10", "total=30"):
        assert number in line


def test_each_method_has_its_ends() -> None:
    settings = {
        Movement(initial_density=0.9, final_density=0.2): (0.9, 0.2, 0.0, None),
        SoftMovement(multiplier=3.0, target_density=0.4): (0.0, 0.1, 3.0, 0.4),
        L0(multiplier=2.0, flat_start=3, flat_end=4): (1.0, 1.0, 2.0, None),
    }
    for section, expected in settings.items():
        s = Schedule.from_settings(section, 100, 10)
        assert (s.initial, s.final, s.final_multiplier, s.target_density) == expected
        assert (s.flat_start, s.flat_end) == (section.flat_start, section.flat_end)


def test_full_sparsity_is_reached_where_the_flat_end_begins() -> None:
    s = schedule(total=100, warmup=10, flat_end=2, initial=1.0, final=0.1)
    assert [s.at_full_sparsity(t) for t in (1, 79, 80, 81, 100)] == [False, False, True, True, True]
    assert s.threshold(79) > s.threshold(80) == s.threshold(100) == 0.1
    without = schedule(total=100, warmup=10, flat_end=0)
    assert [without.at_full_sparsity(t) for t in (99, 100)] == [False, True]
