"""What varies between trials, and their names in a few words."""

import math

import pytest

from bermo_ray.record import Report, Status
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.grid import Grid
from bermo_ray.search.known_trials import ReusingPlan
from bermo_ray.search.layer_count_search import LayerCountSearch
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.trial_names import (
    describe_outcome,
    describe_trial,
    find_varied_fields,
    pick_varied_values,
)
from bermo_ray.trial import L0, LayerDrop, Magnitude, Movement, SoftMovement, Trial

DENSE = Trial().replace(optimizer={"learning_rate": 1e-3, "score_learning_rate": 0.1})
PRUNED = DENSE.replace(pruning=L0(multiplier=10.0), fusion="bermo")
DROPPED = DENSE.replace(layer_drop=LayerDrop(count=2))
RANKED = DENSE.replace(pruning=Magnitude(final_density=0.15))


def test_fields_of_a_section_are_compared_among_the_trials_that_have_it() -> None:
    trials = [DENSE, PRUNED, PRUNED.replace(seed=1)]
    varied = find_varied_fields(trials)
    assert varied == {"fusion.name", "pruning", "seed"}  # λ is 10 wherever there is one
    assert find_varied_fields(trials[1:]) == {"seed"}
    assert find_varied_fields([DENSE]) == frozenset()
    assert pick_varied_values(DENSE, varied) == {
        "pruning.method": "dense", "fusion.name": "last", "seed": 0,
    }  # fmt: skip
    assert pick_varied_values(PRUNED, varied) == {
        "pruning.method": "l0", "fusion.name": "bermo", "seed": 0,
    }  # fmt: skip
    other = PRUNED.replace(pruning=SoftMovement(multiplier=10.0), fusion="bermo")
    assert {"pruning.method"} <= find_varied_fields([PRUNED, other])


def test_a_search_varies_its_ranges_but_for_single_points() -> None:
    arms = {"last": DENSE.replace(pruning=L0(multiplier=10.0)), "bermo": PRUNED}
    ranges = {
        "pruning.multiplier": LogUniform(1, 100),
        "optimizer.score_learning_rate": LogUniform(0.1, 0.1),
    }
    plan = FrontierSearch(Space(arms, ranges, "pruning.multiplier"), 3, (0, 1))
    expected = {"fusion.name", "pruning", "pruning.multiplier", "seed"}
    assert plan.varied_fields() == expected
    assert ReusingPlan(plan, {}).varied_fields() == plan.varied_fields()
    layers = LayerCountSearch([(DENSE, 4)], "top", (1.0,), (0, 1))
    assert layers.varied_fields() == {"layer_drop", "layer_drop.count", "seed"}
    assert Grid([DENSE, DENSE.replace(epochs=4)]).varied_fields() == {"epochs"}


@pytest.mark.parametrize(
    ("trial", "varied", "name"),
    [
        (PRUNED, {"fusion.name", "pruning", "pruning.multiplier"}, "bermo λ=10"),
        (DENSE, {"fusion.name", "pruning", "pruning.multiplier"}, "last dense"),
        (PRUNED, {"fusion.name", "pruning.method", "pruning.multiplier"}, "bermo l0 λ=10"),
        (PRUNED, {"fusion.name", "pruning"}, "bermo l0"),
        # λ tells the trials of a search apart; without one its rates do.
        (PRUNED, {"pruning.multiplier", "optimizer.learning_rate", "seed"}, "λ=10 seed 0"),
        (DENSE, {"pruning", "pruning.multiplier", "optimizer.learning_rate"}, "dense rate 1.0e-03"),
        (PRUNED, {"optimizer.score_learning_rate"}, "score rate 1.0e-01"),
        (DENSE, {"data.task", "fusion.name", "seed"}, "tense last seed 0"),
        (DENSE.replace(backbone="/models/tiny"), {"backbone"}, "tiny"),
        (DROPPED, {"layer_drop", "layer_drop.count"}, "top −2"),
        (DENSE, {"layer_drop", "layer_drop.count"}, "all layers"),
        (RANKED, {"pruning.method"}, "magnitude to 0.15"),
        (DENSE.replace(epochs=7), {"fusion.name", "epochs", "batch_size"}, "last epochs=7"),
    ],
)  # fmt: skip
def test_a_name_says_what_varies(trial: Trial, varied: set[str], name: str) -> None:
    assert describe_trial(trial, varied) == name


def test_without_anything_that_varies_the_usual_is_said() -> None:
    assert describe_trial(DENSE) == describe_trial(DENSE, ()) == "last dense rate 1.0e-03"
    assert describe_trial(DENSE.replace(pruning=Movement(final_density=0.15))) == (
        "last movement to 0.15"
    )
    assert describe_trial(PRUNED.replace(seed=2)) == "bermo l0 λ=10 seed 2"
    asked = DENSE.replace(pruning={"method": "l0", "target_density": 0.2})
    assert describe_trial(asked) == "last l0 to 0.2"
    assert describe_trial(DENSE.replace(layer_drop={"count": 2})) == "last top −2"


def test_outcomes() -> None:
    done = Report(status=Status.COMPLETED, metric=0.93, remaining=0.344)
    assert describe_outcome(done) == "34 % 0.930"
    assert describe_outcome(Report(status=Status.COMPLETED, metric=0.95, remaining=1.0)) == "0.950"
    assert describe_outcome(Report(status=Status.DIVERGED, metric=math.nan)) == "diverged"
