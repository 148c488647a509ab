"""The search for a target: against known surfaces, by hand, and the traps of Ray's own searcher."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray.command_line import frontier_study
from bermo_ray.command_line.frontier_study import ANSWERS
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.results import earlier as earlier_trials
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.sampler import CONSTRAINT
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.search.target import Target
from bermo_ray.search.target_search import Phase, TargetSearch
from bermo_ray.trial import L0, Data, Penalized, Trial
from tests.support.result_rows import result_table

LAMBDA, RATE = "pruning.multiplier", "optimizer.learning_rate"
DENSE = 0.95


def space(fusions: tuple[str, ...] = ("last",)) -> Space:
    base = Trial(pruning=L0())
    arms = {name: base.replace(fusion=name) for name in fusions}
    ranges = {LAMBDA: LogUniform(1, 100), RATE: LogUniform(1e-4, 1e-2)}
    return Space(arms=arms, ranges=ranges, sparsity_key=LAMBDA)


SEARCH_SEED = 9


def search(target: str = "0.98x", trials: int = 12, **changes: Any) -> TargetSearch:
    fusions = changes.pop("fusions", ("last",))
    settings = {"seeds": (0,), "search_seed": SEARCH_SEED, "n_dense_trials": 1} | changes
    return TargetSearch(space(fusions), Target.parse(target), trials, **settings)


def completed(metric: float, remaining: float, verification: float | None = None) -> Report:
    """A trial that reached the same on both halves of dev, unless the second is given."""
    other = metric if verification is None else verification
    halves = {"metric_selection": metric, "metric_verification": other}
    return Report(status=Status.COMPLETED, metric=metric, remaining=remaining, **halves)


def surface(trial: Trial, noise: float = 0.0) -> Report:
    """Sparsity rises with λ, accuracy falls with sparsity and away from the best rate."""
    if not isinstance(trial.pruning, Penalized):
        return completed(DENSE, 1.0)
    x = math.log(trial.pruning.multiplier) / math.log(100)
    rate = (math.log10(trial.optimizer.learning_rate) + 3) / 1.0  # −1 to 1, best at 0
    extra = 0.02 if trial.fusion.name == "bermo" else 0.0
    metric = DENSE - 0.06 * x**2 - 0.03 * rate**2 + extra + noise * (trial.seed - 1)
    return completed(metric, math.exp(-3 * x))


def multiplier_of(trial: Trial) -> float:
    assert isinstance(trial.pruning, Penalized)
    return trial.pruning.multiplier


def if_pruned(trial: Trial, metric: Callable[[Trial], float]) -> Report:
    """The surface, with another metric for pruned trials."""
    report = surface(trial)
    return completed(metric(trial), report.remaining) if trial.pruning else report


def drive(plan: TargetSearch, outcome: Callable[[Trial], Report | None] = surface) -> list[Trial]:
    done = []
    while (trial := plan.ask()) is not None:
        done.append(trial)
        report = outcome(trial)
        plan.tell(trial, [report] if report else [])
    assert plan.finished
    return done


def test_it_finds_the_edge_of_what_is_feasible() -> None:
    plan = search("0.98x", trials=20)
    done = drive(plan)
    (answer,) = plan.answers()
    # 0.95·0.98 = 0.931: at the best rate x = √(0.019/0.06), so e^(−3x) weights remain.
    best = math.exp(-3 * math.sqrt(0.019 / 0.06))
    assert answer["met"]
    assert answer["target_metric"] == pytest.approx(0.931)
    assert answer["metric"] >= 0.931
    assert best <= answer["remaining"] <= 1.05 * best
    # A dense trial, the same with the reported seed, the search, and what it chose.
    assert [(t.pruning is None, t.seed) for t in done] == [
        (True, SEARCH_SEED), (True, 0), *[(False, SEARCH_SEED)] * 20, (False, 0)
    ]  # fmt: skip
    assert answer["seeds"] == 1
    assert answer["metric_interval"] is None
    assert answer["sureness"] > 0.8


def test_what_is_reported_comes_from_seeds_and_rows_that_did_not_choose() -> None:
    """The search's seed is three points lucky and the first half of dev two points easy: the
    answer's figures know neither."""

    def outcome(trial: Trial) -> Report:
        report, luck = surface(trial), 0.03 * (trial.seed == SEARCH_SEED)
        return completed(report.metric + luck + 0.02, report.remaining, report.metric + luck)

    plan = search("0.93", trials=16, seeds=(0, 1, 2))
    done = drive(plan, outcome)
    (answer,) = plan.answers()
    reported = [t for t in done if t.pruning and t.seed != SEARCH_SEED]
    assert [t.seed for t in reported] == [0, 1, 2]
    assert len({t.recipe for t in reported}) == 1
    assert answer["recipe"] == reported[0].recipe
    assert answer["metric"] == pytest.approx(surface(reported[0]).metric)
    assert answer["remaining"] == pytest.approx(surface(reported[0]).remaining)
    # Chosen at 0.93 by metrics that are five points too high.
    assert answer["metric"] < 0.90
    assert not answer["met"]
    assert answer["seeds_met"] == 0
    assert answer["sureness"] < 0.5


def test_a_share_is_of_the_baseline_on_the_same_rows() -> None:
    """On the second half everything is a tenth worse: a share is met there all the same."""
    plan = search("0.98x", trials=16, seeds=(0, 1))

    def outcome(trial: Trial) -> Report:
        report = surface(trial)
        return completed(report.metric, report.remaining, 0.9 * report.metric)

    drive(plan, outcome)
    (answer,) = plan.answers()
    assert plan.arms[0].target_selection == pytest.approx(0.98 * DENSE)
    assert answer["target_metric"] == pytest.approx(0.98 * 0.9 * DENSE)
    assert answer["dense_metric"] == pytest.approx(0.9 * DENSE)
    assert answer["met"]


def test_the_baseline_has_the_best_learning_rate() -> None:
    """Of three rates the middle one is best on the rows that choose; it alone is run again."""
    plan = search("0.98x", trials=2, seeds=(0, 1), n_dense_trials=3)

    def outcome(trial: Trial) -> Report:
        if trial.pruning:
            return surface(trial)
        off = abs(math.log10(trial.optimizer.learning_rate) + 3)
        return completed(DENSE - 0.1 * off, 1.0, 0.9 + 0.05 * off)

    done = drive(plan, outcome)
    rates = [t.optimizer.learning_rate for t in done if not t.pruning]
    # Thirds of 1e-4 to 1e-2, at their middles.
    assert rates == pytest.approx([10 ** (-4 + 1 / 3), 1e-3, 10 ** (-3 + 2 / 3), 1e-3, 1e-3])
    assert plan.arms[0].target_selection == pytest.approx(0.98 * DENSE)
    assert plan.arms[0].target_reported == pytest.approx(0.98 * 0.9)
    assert all(t.embeddings_frozen for t in done)  # on equal terms with what is pruned


def test_the_search_has_a_seed_of_its_own() -> None:
    with pytest.raises(UserError, match="^search_seed: 9 is among the `seeds` that report"):
        search(seeds=(0, 9))


def test_a_seed_that_fails_is_counted() -> None:
    plan = search("0.9", trials=4, seeds=(0, 1))
    drive(plan, lambda t: None if t.pruning and t.seed == 1 else surface(t))
    (answer,) = plan.answers()
    assert (answer["seeds"], answer["seeds_failed"]) == (2, 1)
    assert answer["met"]
    assert answer["metric_interval"] is None


def test_the_first_trials_halve_the_bracket_of_lambda() -> None:
    plan = search(trials=8)
    drive(plan, lambda t: if_pruned(t, lambda t: DENSE if multiplier_of(t) < 30 else 0.5))
    assert plan.arms[0].study is not None
    first = [math.log(t.params[LAMBDA]) / math.log(100) for t in plan.arms[0].study.trials[:3]]
    # Feasible below 30 (0.739 of the log range): ½ yes, ¾ no, ⅝.
    assert first == pytest.approx([0.5, 0.75, 0.625])


def test_nothing_feasible_says_how_close_it_came() -> None:
    plan = search("0.94", trials=6)
    done = drive(plan, lambda t: if_pruned(t, lambda t: 0.9 - multiplier_of(t) / 1e3))
    (answer,) = plan.answers()
    assert not answer["met"]
    assert answer["seeds_met"] == 0
    gentlest = min(multiplier_of(t) for t in done if t.pruning)
    assert answer["multiplier"] == gentlest  # the likeliest of all
    assert answer["metric"] == pytest.approx(0.9 - gentlest / 1e3)


def test_a_target_above_the_dense_baseline_is_not_searched() -> None:
    plan = search("0.96")
    done = drive(plan)
    assert len(done) == 2  # the dense trial that chooses, and the one that reports
    assert plan.refusals == ["target: 0.96 is above last's dense baseline, 0.9500"]
    assert plan.answers() == []
    with pytest.raises(UserError, match="0.96 is above last's dense baseline, 0.9500"):
        search("0.96", earlier=[(t, surface(t)) for t in done])


@pytest.mark.parametrize("text", ["", "x", "high", "-0.5", "0", "nan", "inf", "1.01x"])
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="^target: got [^\n]*$"):
        Target.parse(text)


def test_targets() -> None:
    assert Target.parse("0.885") == Target(0.885)
    assert Target.parse("0.99x").level(0.9) == pytest.approx(0.891)


def test_earlier_trials_teach_and_are_not_run_again() -> None:
    arm = Trial(pruning=L0())
    before = [arm.replace({LAMBDA: lam, RATE: 1e-3, "seed": 7}) for lam in (2.0, 5.0, 10.0, 20.0)]
    others = [
        arm.replace(epochs=9, seed=7).replace({LAMBDA: 3.0}),  # trained otherwise
        arm.replace(seed=7).replace({LAMBDA: 500.0}),  # outside the ranges
        arm.replace(fusion="dwatt", seed=7).replace({LAMBDA: 3.0}),
        arm.replace(seed=0).replace({LAMBDA: 3.0, RATE: 1e-3}),  # a seed that reports
    ]
    dense = [t for t in drive(search()) if t.pruning is None]
    known = [(t, surface(t)) for t in (*before, *others, *dense)]
    diverged = before[0].replace({LAMBDA: 90.0})
    known.append((diverged, Report(status=Status.DIVERGED, metric_selection=0.5, remaining=0.1)))
    plan = search("0.98x", trials=3, earlier=known)
    study = plan.arms[0].study
    assert study is not None
    assert [t.params[LAMBDA] for t in study.trials] == [2.0, 5.0, 10.0, 20.0, 90.0]
    assert study.trials[-1].constraints[CONSTRAINT] == pytest.approx(0.931 - 0.5)
    assert study.trials[0].constraints[CONSTRAINT] == pytest.approx(
        0.931 - surface(before[0]).metric
    )
    done = drive(plan)
    assert [t.seed for t in done] == [SEARCH_SEED] * 3 + [0]  # no baseline, no halving
    assert all(t.pruning for t in done)
    # What was chosen has been reported before: it is not run again.
    again = search("0.98x", trials=3, earlier=[*known, (done[-1], surface(done[-1]))])
    assert [t.id for t in drive(again)] == [t.id for t in done[:-1]]
    assert again.answers() == plan.answers()


def test_trials_on_other_data_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is not part of a trial's id."""
    rows = [
        {
            "task": "text",
            "study": "before",
            "status": "completed",
            "metric": 0.5,
            "metric_selection": 0.4,
            "remaining": 0.5,
            "run_id": folder,
            "started": datetime(2026, 1, 1, tzinfo=UTC),
            "seconds": 1.0,
            "trial_json": Trial(data=Data(task="text", data_dir=folder)).to_json(),
        }
        for folder in ("one", "other")
    ]
    monkeypatch.setattr(earlier_trials, "load_all", lambda uri: result_table(*rows))
    options = frontier_study.FrontierOptions(task="text")
    earlier = frontier_study.read_earlier(options, Data(task="text", data_dir="one"))
    assert [trial.data.data_dir for trial, _ in earlier] == ["one"]
    assert (earlier[0][1].metric_selection, earlier[0][1].status) == (0.4, Status.COMPLETED)
    resumed = frontier_study.FrontierOptions(task="text", name="before")
    assert (
        frontier_study.read_earlier(resumed, Data(task="text", data_dir="one")) == []
    )  # its own are no earlier ones


def curve(*points: tuple[int, float, float | None]) -> list[Report]:
    return [
        Report(step=step, density=density, metric_selection=math.nan if metric is None else metric)
        for step, density, metric in points
    ]


def ended(trial: Trial, path: list[Report], metric: float) -> list[Report]:
    """All reports of a trial that completed with that metric."""
    last = completed(metric, surface(trial).remaining)
    last = replace(last, step=path[-1].step, density=path[-1].density)
    return [*path[:-1], last]


def pass_baseline(plan: TargetSearch, metric: float = DENSE) -> None:
    """Until the sampler is asked."""
    for _ in range(2):
        base = plan.ask()
        assert base is not None
        assert base.pruning is None
        plan.tell(base, [completed(metric, 1.0)])


def test_given_up_is_what_is_late_denser_and_worse_than_all_winners() -> None:
    plan = search("0.90", trials=20)
    pass_baseline(plan)
    path = curve((10, 1.0, 0.80), (20, 0.6, 0.85), (30, 0.3, 0.91))
    for _ in range(3):
        trial = plan.ask()
        assert trial is not None
        plan.tell(trial, ended(trial, path, 0.91))
    running = plan.ask()
    assert running is not None
    assert "given up: 0.7000 at density 0.70" in str(
        plan.give_up_reason(running, curve((20, 0.7, 0.70)))
    )
    # Sparser than the winners were by then: their dense start is no measure for it.
    assert plan.give_up_reason(running, curve((20, 0.5, 0.70))) is None
    assert plan.give_up_reason(running, curve((10, 1.0, 0.10))) is None  # early: it may catch up
    assert plan.give_up_reason(running, curve((20, 0.7, 0.81))) is None  # within the margin
    assert (
        plan.give_up_reason(running, curve((20, 0.2, 0.10))) is None
    )  # sparser than any winner ended
    assert plan.give_up_reason(running, []) is None
    plan.arms[0].target_selection = 0.65
    assert (
        plan.give_up_reason(running, curve((20, 0.7, 0.70))) is None
    )  # it meets the target already
    plan.arms[0].target_selection = 0.9
    # A stopped trial teaches that the target is missed there, not a size.
    plan.tell(running, [Report(status=Status.STOPPED, metric_selection=0.7, remaining=0.7)])
    study = plan.arms[0].study
    assert study is not None
    assert study.trials[-1].constraints[CONSTRAINT] == pytest.approx(0.2)
    assert study.trials[-1].user_attrs
    drive(plan)


@pytest.mark.parametrize("fusion", ["last", "bermo"])
@pytest.mark.parametrize("share", [0.85, 0.9, 0.95, 0.98])
def test_of_recorded_trials_none_is_stopped_that_would_have_been_the_answer(
    fusion: str, share: float
) -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "surface.parquet"
    rows = [r for r in pq.read_table(file).to_pylist() if r["fusion"] == fusion]
    dense = next(r["metric"] for r in rows if r["method"] == "dense")
    plan = search(f"{share * dense}")
    pass_baseline(plan, dense)
    running = plan.ask()
    assert running is not None
    stopped, fewest = [], math.inf
    for row in rows:
        if row["method"] == "dense":
            continue
        path = curve(*json.loads(row["curve"]))
        met = row["status"] == "completed" and row["metric"] >= share * dense
        if any(plan.give_up_reason(running, path[:n]) for n in range(1, len(path))):
            stopped.append(met)
            assert not met or row["remaining"] > fewest
        elif met:
            plan.arms[0].winners.append(path)
            fewest = min(fewest, row["remaining"])
    assert len(stopped) > 3
    assert share < 0.95 or not any(stopped)  # in this order, not one that would have met it


def test_too_few_winners_stop_nothing() -> None:
    plan = search("0.90")
    pass_baseline(plan)
    for _ in range(2):
        trial = plan.ask()
        assert trial is not None
        plan.tell(trial, ended(trial, curve((9, 0.1, 0.95)), 0.95))
    running = plan.ask()
    assert running is not None
    assert plan.give_up_reason(running, curve((9, 1.0, 0.1))) is None


# The traps of Ray's OptunaSearch (stack.md), one by one.


@pytest.mark.parametrize("metric", [math.nan, math.inf, None])
def test_trap_a_trial_without_a_finite_number_does_not_stay_open(metric: float | None) -> None:
    broken = Report(status=Status.COMPLETED, remaining=0.5)
    broken = broken if metric is None else replace(broken, metric_selection=metric)
    target = search(trials=2)
    drive(target, lambda t: broken if t.pruning else surface(t))
    assert target.arms[0].study is not None
    states = [t.state.name for t in target.arms[0].study.trials]
    both = FrontierSearch(space(), 2, (0,))
    while (trial := both.ask()) is not None:
        both.tell(trial, [broken])
    assert both.finished
    states += [t.state.name for t in both.studies["last", 0].trials]
    assert states == ["FAIL"] * 4


def test_trap_two_searches_share_no_study() -> None:
    one, two = search(trials=2), search(trials=2)
    drive(one)
    assert two.arms[0].study is None
    drive(two)
    assert one.arms[0].study is not None
    assert two.arms[0].study is not None
    assert one.arms[0].study.study_name != two.arms[0].study.study_name
    assert len(two.arms[0].study.trials) == 2


def test_trap_a_resumed_search_knows_what_it_knew() -> None:
    dialogue = Dialogue(search(trials=10, seeds=(0, 1)))
    for number in range(7):
        trial = dialogue.ask(str(number))
        assert trial is not None
        if number not in (4, 6):  # two are under way
            dialogue.tell(str(number), surface(trial))
    fresh = Dialogue(search(trials=10, seeds=(0, 1)))
    fresh.replay(json.loads(json.dumps(dialogue.log)))
    assert fresh.log == dialogue.log
    assert list(fresh.running) == ["4", "6"]
    for number in range(7, 10):
        assert fresh.ask(str(number)) == dialogue.ask(str(number))
    other = Dialogue(search(trials=10, seeds=(0, 1), fusions=("bermo",)))
    with pytest.raises(UserError, match="would have asked for other trials"):
        other.replay(dialogue.log)


def test_phases_follow_one_another() -> None:
    plan = search("0.98x", trials=2, seeds=(0, 1), fusions=("last", "bermo"))
    seen: dict[str, list[Phase]] = {"last": [], "bermo": []}
    while (trial := plan.ask()) is not None:
        for arm in plan.arms:
            seen[arm.name].append(arm.phase)
        plan.tell(trial, [surface(trial)])
    order = [Phase.DENSE_SEARCH, Phase.BASELINE, Phase.SEARCH, Phase.REPORT]
    for name, phases in seen.items():
        assert [p for p in dict.fromkeys(phases) if p is not Phase.DONE] == order, name
    assert plan.finished


def test_an_arm_without_a_result_hides_no_other() -> None:
    plan = search(trials=3, fusions=("last", "bermo"))
    drive(plan, lambda t: None if t.pruning and t.fusion.name == "last" else surface(t))
    table = pa.Table.from_pylist(plan.answers(), schema=ANSWERS)
    last, bermo = table.to_pylist()
    assert (last["met"], last["recipe"]) == (None, None)
    assert bermo["recipe"] is not None
    assert bermo["remaining"] > 0


def test_one_refused_arm_leaves_the_others() -> None:
    level = {"last": 0.84, "bermo": 0.95}
    done = drive(search("0.85", trials=2, fusions=("last", "bermo")))
    dense = [t for t in done if t.pruning is None]
    known = [(t, completed(level[t.fusion.name], 1.0)) for t in dense]
    plan = search("0.85", trials=2, fusions=("last", "bermo"), earlier=known)
    assert plan.refusals == ["target: 0.85 is above last's dense baseline, 0.8400"]
    assert {t.fusion.name for t in drive(plan)} == {"bermo"}


def test_dense_trials_that_all_fail_end_an_arm() -> None:
    plan = search()
    drive(plan, lambda t: None)
    assert plan.refusals == ["target: no dense trial of last completed"]
    second = search()
    drive(second, lambda t: surface(t) if t.seed == SEARCH_SEED else None)
    assert second.refusals == ["target: the dense baseline of last did not complete"]


def test_no_trial_is_spent_where_lambda_is_too_small_to_prune() -> None:
    plan = search("0.9", trials=24)

    def flat(t: Trial) -> Report:  # nothing happens below λ = 10, half of the range
        if t.pruning is None or multiplier_of(t) < 10:
            return completed(DENSE, 1.0)
        return completed(surface(t).metric, surface(t).remaining * math.exp(1.5))

    done = [t for t in drive(plan, flat) if t.pruning and t.seed == SEARCH_SEED]
    assert sum(multiplier_of(t) < 10 for t in done[8:]) <= 2
