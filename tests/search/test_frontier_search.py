"""The search for frontiers: one search per arm and seed, alike for all arms."""

import math

import pytest

from bermo_ray.record import Report, Status
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.space import LogUniform, Space
from bermo_ray.trial import L0, Penalized, Trial

LAMBDA, RATE = "pruning.multiplier", "optimizer.learning_rate"


def make_plan(trials: int = 4, seeds: tuple[int, ...] = (0, 1, 2)) -> FrontierSearch:
    base = Trial(pruning=L0())
    arms = {name: base.replace(fusion=name) for name in ("last", "bermo")}
    ranges = {LAMBDA: LogUniform(1, 100), RATE: LogUniform(1e-4, 1e-2)}
    return FrontierSearch(Space(arms=arms, ranges=ranges, sparsity_key=LAMBDA), trials, seeds)


def drive(plan: FrontierSearch) -> list[Trial]:
    done = []
    while (trial := plan.ask()) is not None:
        done.append(trial)
        plan.tell(trial, [outcome(trial)])
    assert plan.finished
    return done


def outcome(trial: Trial) -> Report:
    x = math.log10(trial.pruning.multiplier) if isinstance(trial.pruning, Penalized) else 0.0
    return Report(
        status=Status.COMPLETED,
        remaining=math.exp(-x),
        metric=0.0,
        metric_selection=0.9 - 0.1 * x,
        metric_verification=1.0,
    )


def test_every_seed_and_arm_has_the_same_number_of_trials() -> None:
    plan = make_plan()
    done = drive(plan)
    assert len(done) == plan.most_trials == 3 * 2 * (2 + 4)
    for seed in (0, 1, 2):
        for fusion in ("last", "bermo"):
            one = [t for t in done if (t.seed, t.fusion.name) == (seed, fusion)]
            assert [t.pruning is None for t in one] == [True, True, False, False, False, False]
    assert len(plan.preview()) == plan.most_trials


def test_dense_trials_are_on_equal_terms() -> None:
    dense = [t for t in drive(make_plan(seeds=(0,))) if t.pruning is None]
    assert [t.optimizer.learning_rate for t in dense] == pytest.approx(
        [10**-3.5, 10**-2.5] * 2  # the middles of both halves of the range, for each arm
    )
    assert all(t.embeddings_frozen for t in dense)
    assert len([t for t in drive(make_plan(12, (0,))) if t.pruning is None]) == 8  # a third


def test_each_search_walks_along_lambda_and_seeds_share_it_out() -> None:
    plan = make_plan(trials=8)
    pruned = [t for t in drive(plan) if t.pruning and t.fusion.name == "last"]
    lambdas = {
        seed: [
            math.log10(t.pruning.multiplier) / 2
            for t in pruned
            if t.seed == seed and isinstance(t.pruning, Penalized)
        ]
        for seed in (0, 1, 2)
    }
    # Six walking trials: (k + u)/6 with u = 1/6, 1/2, 5/6.
    for seed, offset in ((0, 1 / 6), (1, 1 / 2), (2, 5 / 6)):
        assert lambdas[seed][:6] == pytest.approx([(k + offset) / 6 for k in range(6)])
        assert lambdas[seed][6] != pytest.approx((6 + offset) / 6)


def test_searches_are_independent() -> None:
    """What a seed's search asks for does not depend on which others run beside it."""
    alone = [t.id for t in drive(make_plan(seeds=(5,))) if t.pruning is None]
    beside = [t.id for t in drive(make_plan(seeds=(5, 6))) if t.pruning is None and t.seed == 5]
    assert alone == beside
    rates = {
        (t.fusion.name, t.seed): t.optimizer.learning_rate for t in drive(make_plan()) if t.pruning
    }
    assert len(set(rates.values())) == 6  # every sampler draws its own


def test_the_sampler_is_told_the_half_that_chooses() -> None:
    plan = make_plan(trials=2, seeds=(0,))
    drive(plan)
    (first, _) = plan.studies["last", 0].trials
    x = math.log10(first.params[LAMBDA])
    assert first.values == pytest.approx([math.exp(-x), 0.9 - 0.1 * x])


def test_a_diverged_trial_keeps_the_sampler_away() -> None:
    plan = make_plan(trials=1, seeds=(0,))
    while (trial := plan.ask()) is not None:
        plan.tell(
            trial,
            [Report(status=Status.DIVERGED, remaining=0.01, constant_metric=0.5)]
            if trial.pruning
            else [outcome(trial)],
        )
    assert plan.studies["bermo", 0].trials[0].values == [1.0, 0.5]
