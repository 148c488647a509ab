"""Counts by halving: the right ones, with few trainings, in any order of arrival."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.search.layer_count_search import LayerCountSearch, Line
from bermo_ray.search.plan import Dialogue
from bermo_ray.trial import Trial

Metric = Callable[[int], float | None]


def brackets(
    depth: int = 12, tasks: tuple[str, ...] = ("tense",), **changes: Any
) -> LayerCountSearch:
    bases = [(Trial().replace(data__task=task), depth - 1) for task in tasks]
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
    values = {(0, 0): 0.9, (0, 1): 0.8, (3, 0): 0.895, (3, 1): 0.785, (4, 0): 0.9, (4, 1): None}
    seen = []
    while (trial := plan.ask()) is not None:
        count = trial.layer_drop.count if trial.layer_drop else 0
        seen.append((count, trial.seed))
        plan.tell(trial, report(values[count, trial.seed]))
    # Mean loss of 3: (0.5 + 1.5)/2 = 1 point, within it; 4 lost a training, so 3 it is.
    assert seen == [(0, 0), (0, 1), (3, 0), (3, 1), (4, 0), (4, 1)]
    assert plan.losses(plan.lines[0])[3] == pytest.approx(1.0)
    assert plan.finished
    assert best(plan, plan.lines[0]) == [3]


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
