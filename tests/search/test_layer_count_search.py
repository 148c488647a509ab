"""Counts by halving: the right ones, with few trainings, in any order of arrival."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.layer_count_search import LayerCountSearch, Line, loss_interval
from bermo_ray.trial import Trial

Metric = Callable[[int], float | None]


def brackets(
    depth: int = 12, tasks: tuple[str, ...] = ("tense",), **changes: Any
) -> LayerCountSearch:
    bases = [(Trial().replace(data={"task": task}), depth - 1) for task in tasks]
    settings = {"strategy": "top", "thresholds": (1.0, 2.0, 3.0), "seeds": (0,)} | changes
    return LayerCountSearch(bases, **settings)


def report(metric: float | None, status: Status = Status.COMPLETED) -> list[Report]:
    if metric is None:
        return [Report(status=Status.FAILED)]
    return [Report(status=status, metric_selection=metric)]


def drive(plan: LayerCountSearch, metric: Metric, at_once: int = 1) -> list[Trial]:
    """Runs a plan; results arrive in random order."""
    random.seed(0)
    done: list[Trial] = []
    running: list[Trial] = []
    while True:
        while len(running) < at_once and (trial := plan.ask()) is not None:
            running.append(trial)
        if not running:
            assert plan.finished
            return done
        assert not plan.finished or not plan.ask()
        trial = running.pop(random.randrange(len(running)))
        done.append(trial)
        plan.tell(trial, report(metric(trial.layer_drop.count if trial.layer_drop else 0)))


def best(plan: LayerCountSearch, line: Line) -> list[int]:
    return [plan.bracket(line, t)[0] for t in plan.thresholds]


@pytest.mark.parametrize("depth", [2, 6, 12, 24])
def test_a_rising_loss_is_bracketed_exactly(depth: int) -> None:
    for spared in range(depth):  # the loss passes 1, 2 and 3 points right behind these counts

        def metric(count: int, spared: int = spared) -> float:
            return 0.9 - 0.0095 * max(0, count - spared) - 1e-5 * count

        plan = brackets(depth)
        done = drive(plan, metric)
        truth = [max(k for k in range(depth) if 100 * (metric(0) - metric(k)) <= t)
                 for t in (1.0, 2.0, 3.0)]  # fmt: skip
        assert best(plan, plan.lines[0]) == truth
        assert len({t.id for t in done}) == len(done), "a count was trained twice"
        # The undropped model, and for each threshold at most ⌈log2 of the counts⌉ + 1.
        assert len(done) <= 1 + 3 * (math.ceil(math.log2(depth)) + 1)
        assert len(done) <= plan.most_trials == depth


def test_few_of_the_papers_twelve_counts_are_trained() -> None:
    """BERT on QQP, Table 4: 6, 8 and 9 layers at 1, 2 and 3 points."""
    loss = {0: 0, 6: 0.75, 7: 1.2, 8: 1.6, 9: 2.27, 10: 3.5, 11: 6.0}
    plan = brackets(12)
    done = drive(plan, lambda k: 0.91 - loss.get(k, 0.1 * k) / 100)
    assert best(plan, plan.lines[0]) == [6, 8, 9]
    assert len(done) == 6


def test_order_of_arrival_and_tasks_at_once_change_nothing() -> None:
    tasks = ("tense", "entities")

    def run(at_once: int) -> list[list[int]]:
        plan = brackets(12, tasks)
        drive(plan, lambda k: 0.9 - 0.003 * k, at_once)
        return [best(plan, line) for line in plan.lines]

    assert run(1) == run(4) == [[3, 6, 10], [3, 6, 10]]


def test_a_task_named_twice_is_run_once() -> None:
    plan = brackets(6, ("tense", "tense"))
    done = drive(plan, lambda k: 0.9 - 0.001 * k)
    assert len({t.id for t in done}) == len(done) <= plan.most_trials == 6


def test_a_later_count_that_loses_less_is_taken() -> None:
    plan = brackets(12, thresholds=(1.0,))
    drive(plan, lambda k: 0.88 if k in (3, 4, 5) else 0.9 - 0.0001 * k)
    assert best(plan, plan.lines[0]) == [11]  # the first middle, 6, is within it


def test_means_over_seeds_and_what_failed() -> None:
    plan = brackets(6, thresholds=(1.0,), seeds=(0, 1))
    values = {
        (0, 0): 0.9, (0, 1): 0.8, (2, 0): 0.9, (2, 1): 0.8, (3, 0): 0.895, (3, 1): 0.785,
        (4, 0): 0.9, (4, 1): None,
    }  # fmt: skip
    seen = []
    while (trial := plan.ask()) is not None:
        count = trial.layer_drop.count if trial.layer_drop else 0
        seen.append((count, trial.seed))
        plan.tell(trial, report(values[count, trial.seed]))
    # Mean loss of 3: (0.5 + 1.5)/2 = 1 point, within it; 4 lost a training, so 3 it is.
    # What 3 lost with each seed leaves room for more than 1 point: its neighbour 2 is trained too.
    assert seen == [(0, 0), (0, 1), (3, 0), (3, 1), (4, 0), (4, 1), (2, 0), (2, 1)]
    assert plan.losses(plan.lines[0])[3] == pytest.approx(1.0)
    assert plan.finished
    assert best(plan, plan.lines[0]) == [3]


def counts_trained(
    plan: LayerCountSearch, lost: Callable[[int], float], noise: tuple[float, ...]
) -> list[int]:
    """Runs a plan on points lost by count, and more or less by ``noise`` with each seed."""
    trained = []
    while (trial := plan.ask()) is not None:
        count = trial.layer_drop.count if trial.layer_drop else 0
        trained += [count] if trial.seed == plan.seeds[0] else []
        points = lost(count) + noise[trial.seed] if count else 0.0
        plan.tell(trial, report(0.9 - points / 100))
    assert plan.finished
    return trained


def test_a_count_in_doubt_has_its_neighbours_trained() -> None:
    def search(noise: tuple[float, ...]) -> tuple[list[int], list[int]]:
        plan = brackets(12, thresholds=(1.0,), seeds=tuple(range(len(noise))))
        trained = counts_trained(plan, lambda k: 0.3 * k, noise)
        return trained, best(plan, plan.lines[0])

    # Halving: 6 loses 1.8, 3 loses 0.9, 4 loses 1.2.
    assert search((0.0,)) == search((0.0, 0.0, 0.0)) == ([0, 6, 3, 4], [3])
    # ±0.03 gives 0.9 ± 0.075 and 1.2 ± 0.075: beside the threshold.
    assert search((-0.03, 0.0, 0.03)) == ([0, 6, 3, 4], [3])
    # ±0.06 gives 0.9 ± 0.149, which holds 1; 1.2 ± 0.149 does not.
    assert search((-0.06, 0.0, 0.06)) == ([0, 6, 3, 4, 2], [3])
    # ±0.1 gives 0.9 ± 0.248 and 1.2 ± 0.248: both hold it.
    assert search((-0.1, 0.0, 0.1)) == ([0, 6, 3, 4, 2, 5], [3])


def test_a_neighbour_that_is_within_becomes_the_answer() -> None:
    lost = {3: 0.5, 4: 1.05, 5: 0.95, 6: 2.0}
    plan = brackets(12, thresholds=(1.0,), seeds=(0, 1, 2))
    # Halving ends between 3 and 4; 1.05 ± 0.248 holds 1, so 5 is trained, and is within.
    assert counts_trained(plan, lost.__getitem__, (-0.1, 0.0, 0.1)) == [0, 6, 3, 4, 5]
    assert best(plan, plan.lines[0]) == [5]
    alone = brackets(12, thresholds=(1.0,), seeds=(0,))
    assert counts_trained(alone, lost.__getitem__, (0.0,)) == [0, 6, 3, 4]
    assert best(alone, alone.lines[0]) == [3]


def test_an_interval_is_of_paired_differences() -> None:
    undropped, dropped = {0: 0.9, 1: 0.7, 2: 0.8, 3: 0.5}, {2: 0.79, 0: 0.89, 1: 0.68}
    # 1, 2 and 1 points: mean 4/3, deviation 1/√3, t of two degrees of freedom 4.302653.
    interval = loss_interval(undropped, dropped)
    assert interval == pytest.approx((4 / 3 - 4.302653 / 3, 4 / 3 + 4.302653 / 3))
    assert loss_interval(undropped, {0: 0.89}) is None


def test_a_seed_named_twice_is_run_once() -> None:
    plan = brackets(6, thresholds=(1.0,), seeds=(0, 0))
    done = drive(plan, lambda k: 0.9 - 0.001 * k)
    assert len({t.id for t in done}) == len(done) <= plan.most_trials == 6


def test_too_few_dev_rows_for_two_halves_are_one_line() -> None:
    def search(dev_rows: float | None) -> LayerCountSearch:
        base = Trial().replace(data={"dev_rows": dev_rows})
        return LayerCountSearch([(base, 5)], "top", (1.0,), (0,))

    line = (
        "data.dev_rows: got 3, expected >= 4: two rows to choose a count on and two to verify it on"
    )
    with pytest.raises(UserError, match=f"^{line}$"):
        search(3)
    for enough in (4, 0.5, None):
        assert search(enough).most_trials == 6


def test_an_undropped_model_without_a_result_ends_its_line() -> None:
    plan = brackets(12, ("tense", "entities"))
    first, second = plan.ask(), plan.ask()
    assert first is not None
    assert second is not None
    plan.tell(first, [])
    plan.tell(second, report(0.5, Status.DIVERGED))
    assert plan.ask() is None
    assert plan.finished


def test_a_killed_search_goes_on_where_it_was() -> None:
    dialogue = Dialogue(brackets(12))
    for number in range(3):
        trial = dialogue.ask(str(number))
        assert trial is not None
        count = trial.layer_drop.count if trial.layer_drop else 0
        dialogue.tell(str(number), report(0.9 - 0.004 * count)[-1])
    again = Dialogue(brackets(12))
    again.replay(dialogue.log)
    assert again.ask("next") == dialogue.ask("next")
    other = Dialogue(brackets(12, strategy="bottom"))
    with pytest.raises(UserError, match="would have asked for other trials"):
        other.replay(dialogue.log)


def test_thresholds_below_zero_are_one_line() -> None:
    with pytest.raises(UserError, match="^thresholds: got .* expected points of 0 or more$"):
        brackets(thresholds=(-1.0,))
