import pytest

from bermo_ray.errors import UserError
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.trial import L0, Trial

LAMBDA = "pruning.multiplier"


def space(**changes: object) -> Space:
    arms = {"last": Trial(pruning=L0())}
    values = {"arms": arms, "ranges": {LAMBDA: LogUniform(1, 100)}} | changes
    return Space(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: LogUniform(0, 1), "got 0..1, expected 0 < low <= high"),
        (lambda: LogUniform(2, 1), "got 2..1"),
        (lambda: LogUniform(-3, 1), "got -3..1"),
        (lambda: space(arms={}), "the search space is empty"),
        (lambda: space(ranges={}), "the search space is empty"),
        (lambda: space(ranges={LAMBDA: LogUniform(5, 5)}), "a single point"),
        (lambda: space(ranges={"pruning.lamda": LogUniform(1, 2)}), "unknown key 'pruning.lamda'"),
    ],
)
def test_bad_spaces_are_one_line(make: object, line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        make()  # type: ignore[operator]
    assert line in str(caught.value)


def test_coordinates_are_of_trials_of_the_same_kind() -> None:
    arm = Trial(pruning=L0())
    assert space().coordinates("last", arm.replace(seed=3).replace({LAMBDA: 7.0})) == {LAMBDA: 7.0}
    assert space().coordinates("last", arm.replace({LAMBDA: 101.0})) is None  # outside
    assert space().coordinates("last", arm.replace(epochs=9).replace({LAMBDA: 7.0})) is None
    assert space().coordinates("last", Trial()) is None  # nothing pruned
