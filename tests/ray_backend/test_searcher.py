import json
import math
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import TrialConfig, encode_result
from bermo_ray.record import Report, Status
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import L0, Penalized, Trial

LAMBDA, RATE = "pruning.multiplier", "optimizer.learning_rate"
CONFIG = TrialConfig(Resources(), "x")


def space() -> Space:
    base = Trial(pruning=L0())
    arms = {name: base.replace(fusion=name) for name in ("last", "bermo")}
    ranges = {LAMBDA: LogUniform(1, 100), RATE: LogUniform(1e-4, 1e-2)}
    return Space(arms, ranges, LAMBDA)


def trial_of(config: object) -> Trial:
    assert isinstance(config, dict)
    return Trial.from_json(config["trial"])


def multiplier_of(trial: Trial) -> float:
    assert isinstance(trial.pruning, Penalized)
    return trial.pruning.multiplier


def search(trials: int = 4) -> PlanSearcher:
    return PlanSearcher(FrontierSearch(space(), trials, (0,), n_dense_trials=1), CONFIG)


def studies(searcher: PlanSearcher) -> Any:
    assert isinstance(searcher.plan, FrontierSearch)
    return {arm: study for (arm, _), study in searcher.plan.studies.items()}


def end(searcher: PlanSearcher, attempt: str, status: Status, **figures: float) -> None:
    report = Report(status=status, **figures)  # type: ignore[arg-type]
    searcher.on_trial_complete(attempt, encode_result(report))


def finish(searcher: PlanSearcher, attempt: str, remaining: float, metric: float) -> None:
    end(searcher, attempt, Status.COMPLETED, remaining=remaining, metric_selection=metric)


def test_baselines_come_first_then_the_arms_in_turn_then_it_ends() -> None:
    searcher = search()
    assert searcher.plan.most_trials == 10
    trials = [trial_of(searcher.suggest(str(i))) for i in range(10)]
    assert [t.pruning for t in trials[:2]] == [None, None]
    assert [t.fusion.name for t in trials] == ["last", "bermo"] * 5
    # They walk λ's inner quantiles: ⅛, ⅜, ⅝ and ⅞ of the log range 1..100.
    walked = [multiplier_of(t) for t in trials[2:]]
    ends = (0.25, 0.25, 0.75, 0.75, 1.25, 1.25, 1.75, 1.75)
    assert [round(v, 6) for v in walked] == [round(10**e, 6) for e in ends]
    for trial in trials[2:]:
        assert 1 <= multiplier_of(trial) <= 100
        assert 1e-4 <= trial.optimizer.learning_rate <= 1e-2
    assert len({t.id for t in trials}) == 10
    assert searcher.suggest("more") == Searcher.FINISHED


def test_every_end_is_told_so_that_no_trial_stays_open() -> None:
    searcher = search(3)
    for i in range(8):
        searcher.suggest(str(i))
    finish(searcher, "2", 0.4, 0.9)
    end(searcher, "3", Status.DIVERGED, constant_metric=0.5)
    searcher.on_trial_complete("4", None, error=True)
    end(searcher, "5", Status.FAILED)
    finish(searcher, "6", 0.2, 0.8)
    finish(searcher, "7", 0.3, 0.7)
    states = {n: [t.state.name for t in s.trials] for n, s in studies(searcher).items()}
    assert states == {
        "last": ["COMPLETE", "FAIL", "COMPLETE"],
        "bermo": ["COMPLETE", "FAIL", "COMPLETE"],
    }
    assert studies(searcher)["last"].trials[0].values == [0.4, 0.9]
    # Diverged: told as dense and constant, whatever was left of it.
    assert studies(searcher)["bermo"].trials[0].values == [1.0, 0.5]


def test_a_trial_that_tune_cut_off_is_told_as_stopped() -> None:
    searcher = search(3)
    searcher.suggest("0")
    searcher.on_trial_complete("0", encode_result(Report(step=3, metric=0.5)))
    told = {"step": 3, "metric": 0.5, "status": "stopped"}
    assert searcher.dialogue.log[-1] == {"told": "0", "reports": [told]}


def test_restore_brings_back_what_was_told_and_what_was_open(tmp_path: Path) -> None:
    searcher = search()
    configs = {str(i): searcher.suggest(str(i)) for i in range(6)}
    finish(searcher, "0", 1.0, 0.95)
    finish(searcher, "1", 1.0, 0.95)
    finish(searcher, "2", 0.4, 0.9)
    end(searcher, "3", Status.FAILED)
    searcher.save(str(tmp_path / "state"))

    again = search()
    again.restore(str(tmp_path / "state"))
    assert again.dialogue.log == searcher.dialogue.log
    assert len(again.dialogue.log) == 10
    optuna_trials = [t for s in studies(again).values() for t in s.trials]
    assert sorted(t.state.name for t in optuna_trials) == ["COMPLETE", "FAIL", "RUNNING", "RUNNING"]
    finish(again, "4", 0.3, 0.8)  # was open when it was saved
    done = studies(again)["last"].trials[-1]
    assert done.values == [0.3, 0.8]
    assert math.isclose(done.params[LAMBDA], multiplier_of(trial_of(configs["4"])))
    rest = [again.suggest(f"n{i}") for i in range(4)]
    assert all(isinstance(c, dict) for c in rest)
    # As if it had not been cut off: the samplers are where they were.
    finish(searcher, "4", 0.3, 0.8)
    assert [searcher.suggest(f"n{i}") for i in range(4)] == rest
    assert again.suggest("end") == Searcher.FINISHED


def test_a_trial_that_tune_never_heard_of_is_told_as_lost(tmp_path: Path) -> None:
    """Killed between two of Tune's files: of two trials under way it has the first alone."""
    searcher = search()
    for i in range(4):
        searcher.suggest(str(i))
    finish(searcher, "0", 1.0, 0.95)
    finish(searcher, "1", 1.0, 0.95)
    searcher.save(str(tmp_path / "state"))
    again = search()
    again.known_to_tune = {"0", "1", "2"}
    again.restore(str(tmp_path / "state"))
    assert list(again.dialogue.running) == ["2"]
    assert again.dialogue.log[-1] == {"told": "3", "reports": []}
    assert json.loads((tmp_path / "state").read_text())["finished"] is False
