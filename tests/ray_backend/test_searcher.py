import math
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import TrialConfig, encode_result
from bermo_ray.record import Report, Status
from bermo_ray.search.dialogue import Dialogue
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
    return PlanSearcher(Dialogue(make_plan(trials)), CONFIG)


def make_plan(trials: int = 4) -> FrontierSearch:
    return FrontierSearch(space(), trials, (0,), n_dense_trials=1)


def studies(searcher: PlanSearcher) -> Any:
    assert isinstance(searcher.dialogue.plan, FrontierSearch)
    return {arm: study for (arm, _), study in searcher.dialogue.plan.studies.items()}


def end(searcher: PlanSearcher, attempt: str, status: Status, **figures: float) -> None:
    report = Report(status=status, **figures)  # type: ignore[arg-type]
    searcher.on_trial_complete(attempt, encode_result(report))


def finish(searcher: PlanSearcher, attempt: str, remaining: float, metric: float) -> None:
    end(searcher, attempt, Status.COMPLETED, remaining=remaining, metric_selection=metric)


def test_baselines_come_first_then_the_arms_in_turn_then_it_ends() -> None:
    searcher = search()
    assert searcher.dialogue.plan.most_trials == 10
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
    assert searcher.dialogue.log[-1] == {"told": "00000", "reports": [told]}


def test_a_log_brings_back_what_was_told_and_what_was_open(tmp_path: Path) -> None:
    searcher = PlanSearcher(Dialogue(make_plan(), tmp_path / "log.jsonl"), CONFIG)
    configs = {str(i): searcher.suggest(str(i)) for i in range(6)}
    finish(searcher, "0", 1.0, 0.95)
    finish(searcher, "1", 1.0, 0.95)
    finish(searcher, "2", 0.4, 0.9)
    end(searcher, "3", Status.FAILED)
    with (tmp_path / "log.jsonl").open("a") as stream:
        stream.write('{"told": "00004", "rep')  # killed in the middle of a line

    again = PlanSearcher(Dialogue(make_plan(), tmp_path / "log.jsonl"), CONFIG)
    known = again.dialogue.resume()
    assert [attempt for attempt, _, _ in known] == ["00000", "00001", "00002", "00003"]
    assert again.dialogue.log == searcher.dialogue.log
    assert len(again.dialogue.log) == 10
    optuna_trials = [t for s in studies(again).values() for t in s.trials]
    assert sorted(t.state.name for t in optuna_trials) == ["COMPLETE", "FAIL", "RUNNING", "RUNNING"]
    # What was open comes first, under the names of its attempts.
    assert [again.suggest("a"), again.suggest("b")] == [configs["4"], configs["5"]]
    finish(again, "a", 0.3, 0.8)
    done = studies(again)["last"].trials[-1]
    assert done.values == [0.3, 0.8]
    assert math.isclose(done.params[LAMBDA], multiplier_of(trial_of(configs["4"])))
    rest = [again.suggest(f"n{i}") for i in range(4)]
    assert all(isinstance(c, dict) for c in rest)
    # As if it had not been cut off: the samplers are where they were.
    finish(searcher, "4", 0.3, 0.8)
    assert [searcher.suggest(f"n{i}") for i in range(4)] == rest
    assert again.suggest("end") == Searcher.FINISHED


def test_what_ends_with_the_study_has_not_ended(tmp_path: Path) -> None:
    searcher = search()
    for i in range(3):
        searcher.suggest(str(i))
    searcher.stop_reason = "storage: no room left"
    searcher.on_trial_complete("0", encode_result(Report(step=3, metric=0.5)))
    searcher.on_trial_complete("1", None, error=True)
    finish(searcher, "2", 1.0, 0.95)
    assert list(searcher.dialogue.running) == ["00000", "00001"]
    assert searcher.suggest("more") == Searcher.FINISHED
