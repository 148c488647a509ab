"""What the frontier studies plan, where they look, and what they refuse."""

from typing import Any

import pytest

from bermo_ray.command_line.frontier_study import FrontierOptions, make_space, plan_frontier
from bermo_ray.errors import UserError
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.space import LogUniform
from bermo_ray.search.target_search import TargetSearch


def test_ranges_are_what_is_recommended_unless_given() -> None:
    space = make_space(FrontierOptions(), "l0")
    ends = {key: (span.low, span.high) for key, span in space.ranges.items()}
    assert ends == {
        "pruning.multiplier": (5.0, 50.0),
        "optimizer.learning_rate": (1e-3, 1.8e-3),
        "optimizer.score_learning_rate": (8e-2, 1.4e-1),
    }
    assert space.ranges_of("last") == space.ranges
    assert space.ranges_of("bermo")["pruning.multiplier"] == LogUniform(1.2, 12.0)
    given = make_space(FrontierOptions(multipliers=(2.0, 3.0)), "soft_movement")
    assert given.ranges_of("bermo")["pruning.multiplier"].high == 3.0
    assert given.ranges["optimizer.score_learning_rate"].low == 2e-2
    with pytest.raises(UserError, match="^unknown question 'movment'"):
        make_space(FrontierOptions(), "movment")


def test_every_trial_ends_with_the_checkpoint_that_is_asked_for() -> None:
    for asked in ("last", "best"):
        options = FrontierOptions(final_checkpoint=asked, trials=1, seeds=(0,))  # type: ignore[arg-type]
        trials = plan_frontier(options, "l0").representatives()
        assert {trial.final_checkpoint for trial in trials} == {asked}


def test_a_target_is_searched_by_a_seed_of_its_own() -> None:
    frontier = plan_frontier(FrontierOptions(), "l0")
    assert isinstance(frontier, FrontierSearch)
    assert (frontier.seeds, frontier.trials_per_arm, frontier.n_dense_trials) == ((0, 1, 2), 5, 2)
    assert frontier.most_trials == 3 * 2 * (5 + 2)
    target = plan_frontier(FrontierOptions(target="0.95x", fresh=True), "l0")
    assert isinstance(target, TargetSearch)
    assert (target.search_seed, target.seeds, target.trials_per_arm) == (1000, (0, 1, 2), 16)
    assert target.most_trials == 2 * (5 + 3 + 16 + 3)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"seeds": (3,), "levels": (0.9,)},
            "seeds: one seed gives no interval to compare by; give two or more",
        ),
        (
            {"fusions": ("bermo",), "levels": (0.9,)},
            "levels: got one fusion, bermo; comparing takes two",
        ),
        (
            {"levels": (0.9, 1.2)},
            "levels: got 1.2, expected shares of the baseline, 0 < share <= 1",
        ),
        (
            {"levels": (0.9,), "target": "0.9x"},
            "levels: they compare complete frontiers; `target` asks for one point",
        ),
        (
            {"seeds": (0, 1000), "target": "0.9x", "fresh": True},
            "search_seed: 1000 is among the `seeds` that report; choose another",
        ),
        ({"target": "1.5"}, "target: got 1.5, but accuracy is at most 1"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as error:
        plan_frontier(FrontierOptions(**options), "l0")
    assert error.value.problems == (problem,)
