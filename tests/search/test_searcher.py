import math
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from bermo_ray.errors import UserError
from bermo_ray.search.arms import FrontierSearch
from bermo_ray.search.searcher import PlanSearcher
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.trial import Pruning, Trial

LAMBDA, RATE = "pruning__final_lambda", "optimizer__learning_rate"


def space(**changes: object) -> Space:
    base = Trial(pruning=Pruning())
    arms = {name: base.replace(fusion__name=name) for name in ("last", "bermo")}
    values = {
        "arms": arms,
        "ranges": {LAMBDA: LogUniform(1, 100), RATE: LogUniform(1e-4, 1e-2)},
        "spread": LAMBDA,
        "fixed": (arms["last"].replace(pruning=None),),
    } | changes
    return Space(**values)  # type: ignore[arg-type]


def trial_of(config: object) -> Trial:
    assert isinstance(config, dict)
    return Trial.from_json(config["trial"])


def search(space: Space, trials: int = 4, seeds: tuple[int, ...] = (0,)) -> PlanSearcher:
    return PlanSearcher(FrontierSearch(space, trials, seeds), {"storage": "x"})


def studies(searcher: PlanSearcher) -> Any:
    return searcher.plan._studies  # type: ignore[attr-defined]


def finish(searcher: PlanSearcher, trial_id: str, remaining: float, metric: float) -> None:
    result = {"status": "completed", "final": True, "remaining": remaining, "metric": metric}
    searcher.on_trial_complete(trial_id, result)


def test_fixed_trials_come_first_then_the_arms_in_turn_then_it_ends() -> None:
    searcher = search(space())
    assert searcher.plan.most == 9
    trials = [trial_of(searcher.suggest(str(i))) for i in range(9)]
    assert trials[0].pruning is None
    assert [t.fusion.name for t in trials[1:]] == ["last", "bermo"] * 4
    # The first half walks λ's inner quantiles: ¼ and ¾ of the log range 1..100.
    walked = [t.pruning.final_lambda for t in trials[1:5] if t.pruning]
    assert [round(v, 6) for v in walked] == [round(10**e, 6) for e in (0.5, 0.5, 1.5, 1.5)]
    for trial in trials[1:]:
        assert trial.pruning is not None
        assert 1 <= trial.pruning.final_lambda <= 100
        assert 1e-4 <= trial.optimizer.learning_rate <= 1e-2
    assert len({t.id for t in trials}) == 9
    for i in range(1, 9):
        assert searcher.suggest("more") is None  # results are due: they may lead to repeats
        finish(searcher, str(i), 0.1 * i, 0.1 * i)
    assert searcher.suggest("more") == Searcher.FINISHED


def test_every_end_is_told_so_that_no_trial_stays_open() -> None:
    searcher = search(space(fixed=()), 3)
    for i in range(6):
        searcher.suggest(str(i))
    finish(searcher, "0", 0.4, 0.9)
    searcher.on_trial_complete("1", {"status": "diverged", "final": True, "trivial": 0.5})
    searcher.on_trial_complete("2", None, error=True)
    searcher.on_trial_complete("3", {"status": "failed", "final": True})
    finish(searcher, "4", 0.2, 0.8)
    finish(searcher, "5", 0.3, 0.7)
    states = {n: [t.state.name for t in s.trials] for n, s in studies(searcher).items()}
    assert states == {
        "last": ["COMPLETE", "FAIL", "COMPLETE"],
        "bermo": ["COMPLETE", "FAIL", "COMPLETE"],
    }
    assert studies(searcher)["last"].trials[0].values == [0.4, 0.9]
    # Diverged: told as dense and trivial, whatever was left of it.
    assert studies(searcher)["bermo"].trials[0].values == [1.0, 0.5]


def test_restore_brings_back_what_was_told_and_what_was_open(tmp_path: Path) -> None:
    searcher = search(space())
    configs = {str(i): searcher.suggest(str(i)) for i in range(5)}
    finish(searcher, "0", 1.0, 0.95)
    finish(searcher, "1", 0.4, 0.9)
    searcher.on_trial_complete("2", {"status": "failed", "final": True})
    searcher.save(str(tmp_path / "state"))

    again = search(space())
    again.restore(str(tmp_path / "state"))
    assert len(again.log) == len(searcher.log) == 8
    told = [t for s in studies(again).values() for t in s.trials]
    assert sorted(t.state.name for t in told) == ["COMPLETE", "FAIL", "RUNNING", "RUNNING"]
    finish(again, "3", 0.3, 0.8)  # was open when it was saved
    done = studies(again)["last"].trials[-1]
    assert done.values == [0.3, 0.8]
    expected = trial_of(configs["3"])
    assert expected.pruning is not None
    assert math.isclose(done.params[LAMBDA], expected.pruning.final_lambda)
    rest = [again.suggest(f"n{i}") for i in range(4)]
    assert all(isinstance(c, dict) for c in rest)
    # As if it had not been cut off: the samplers are where they were.
    finish(searcher, "3", 0.3, 0.8)
    assert [searcher.suggest(f"n{i}") for i in range(4)] == rest
    for trial_id in ("4", *(f"n{i}" for i in range(4))):
        assert again.suggest("wait") is None
        finish(again, trial_id, 0.5, 0.5)
    assert again.suggest("end") == Searcher.FINISHED


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: LogUniform(0, 1), "got 0..1, expected 0 < low <= high"),
        (lambda: LogUniform(2, 1), "got 2..1"),
        (lambda: LogUniform(-3, 1), "got -3..1"),
        (lambda: space(arms={}), "the search space is empty"),
        (lambda: space(ranges={}), "the search space is empty"),
        (lambda: space(ranges={"pruning__final_lambda": LogUniform(5, 5)}), "a single point"),
        (lambda: space(ranges={"pruning__lamda": LogUniform(1, 2)}), "unknown key 'pruning.lamda'"),
    ],
)
def test_bad_spaces_are_one_line(make: object, line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        make()  # type: ignore[operator]
    assert line in str(caught.value)
