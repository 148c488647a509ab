"""A plan of whose trials some are known: those are told, not asked for."""

from collections.abc import Sequence

import pytest

from bermo_ray.record import Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.grid import Grid
from bermo_ray.search.known_trials import KnownTrial, ReusingPlan
from bermo_ray.trial import Trial

TRIALS = [Trial(seed=seed) for seed in range(5)]


def known(*seeds: int) -> dict[str, KnownTrial]:
    report = Report(status=Status.COMPLETED, metric=0.9)
    return {
        trial.id: KnownTrial(trial, report, f"run{trial.seed}", "earlier", "")
        for trial in TRIALS
        if trial.seed in seeds
    }


class Told(Grid):
    """Remembers what it was told."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__(trials)
        self.ends: list[tuple[int, float]] = []

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        self.ends.append((trial.seed, reports[-1].metric))


@pytest.mark.parametrize("seeds", [(), (0,), (4,), (1, 2), (0, 2, 4)])
def test_only_unknown_trials_are_asked_for(seeds: tuple[int, ...]) -> None:
    inner = Told(TRIALS)
    plan = ReusingPlan(inner, known(*seeds))
    assert plan.most_trials == 5 - len(seeds)
    run = []
    while (trial := plan.ask()) is not None:
        assert not plan.finished or len(run) == plan.most_trials - 1
        run.append(trial.seed)
        plan.tell(trial, [Report(status=Status.COMPLETED, metric=0.1)])
    assert run == [seed for seed in range(5) if seed not in seeds]
    assert plan.finished
    assert sorted(k.trial.seed for k in plan.taken.values()) == list(seeds)
    assert sorted(inner.ends) == [(seed, 0.9 if seed in seeds else 0.1) for seed in range(5)]


def test_a_plan_whose_last_trials_are_known_ends_with_the_last_result() -> None:
    plan = ReusingPlan(Grid(TRIALS), known(3, 4))
    asked = [plan.ask() for _ in range(3)]
    assert not plan.finished
    for trial in asked:
        assert trial is not None
        plan.tell(trial, [])
    assert plan.finished


def test_a_plan_that_is_all_known_asks_for_nothing() -> None:
    plan = ReusingPlan(Grid(TRIALS), known(*range(5)))
    assert plan.finished
    assert plan.ask() is None
    assert len(plan.taken) == 5


def test_a_log_is_told_again() -> None:
    dialogue = Dialogue(ReusingPlan(Grid(TRIALS), known(0, 2)))
    for attempt in ("a", "b"):
        dialogue.ask(attempt)
    dialogue.tell("a", Report(status=Status.COMPLETED, metric=0.1))
    again = Dialogue(ReusingPlan(Grid(TRIALS), known(0, 2)))
    again.replay(dialogue.log)
    assert [trial.seed for trial in again.running.values()] == [3]
    last = again.ask("c")
    assert last is not None
    assert last.seed == 4
