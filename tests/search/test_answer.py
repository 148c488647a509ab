"""Which recipe a search answers with, and how sure that is."""

import math

import optuna
import pytest
from scipy.stats import norm, t

from bermo_ray.search.answer import Choice, Sureness, choose_recipe
from bermo_ray.search.sampler import CONSTRAINT, SIZE_UNKNOWN

SPANS = {"x": optuna.distributions.FloatDistribution(1.0, math.e, log=True)}


def study_of(*trials: tuple[float, float, float]) -> optuna.Study:
    """(x in [0, 1], remaining, shortfall) of completed trials."""
    study = optuna.create_study()
    for x, remaining, miss in trials:
        study.add_trial(
            optuna.trial.create_trial(
                params={"x": math.exp(x)},
                distributions=dict(SPANS),
                values=[remaining],
                constraints={CONSTRAINT: miss},
            )
        )
    return study


def test_the_sparsest_that_is_likely_to_meet_the_target_is_chosen() -> None:
    # A smooth surface: met up to x = 0.5.
    grid = [k / 10 for k in range(11)]
    choice = choose_recipe(study_of(*((x, 0.9 - 0.5 * x, 0.1 * (x - 0.5)) for x in grid)))
    assert choice is not None
    assert math.log(choice.params["x"]) in (pytest.approx(0.4), pytest.approx(0.5))
    assert choice.margin == pytest.approx(0.1 * (0.5 - math.log(choice.params["x"])), abs=2e-3)


def test_a_lucky_trial_is_not_the_answer() -> None:
    """Around x = 0.9 all miss by three points but for one that, as luck has it, meets it."""
    near = [(0.82 + 0.02 * k, 0.2, 0.03) for k in range(8)]
    lucky = (0.91, 0.19, -0.005)
    sure = [(0.02 * k, 0.8 - 0.01 * k, -0.03) for k in range(8)]
    choice = choose_recipe(study_of(*near, lucky, *sure))
    assert choice is not None
    assert math.log(choice.params["x"]) < 0.2
    assert choice.noise > 0.003


def test_where_none_is_likely_the_likeliest_is_chosen() -> None:
    choice = choose_recipe(study_of(*((k / 5, 0.5, 0.05 + 0.1 * k / 5) for k in range(6))))
    assert choice is not None
    assert math.log(choice.params["x"]) == pytest.approx(0.0)
    assert choice.margin == pytest.approx(-0.05, abs=0.01)


def test_a_trial_of_unknown_size_is_no_answer() -> None:
    study = study_of((0.2, 0.5, -0.02), (0.4, 0.4, -0.01))
    study.add_trial(
        optuna.trial.create_trial(
            params={"x": 2.0},
            distributions=dict(SPANS),
            values=[0.01],
            constraints={CONSTRAINT: -0.5},
            user_attrs={SIZE_UNKNOWN: True},
        )
    )
    choice = choose_recipe(study)
    assert choice is not None
    assert choice.params["x"] != 2.0
    assert choose_recipe(optuna.create_study()) is None


def test_sureness_weighs_both_sources_by_their_precision() -> None:
    choice = Choice({}, margin=0.01, deviation=0.02, noise=0.02)
    # One seed: its variance is the search's noise. Precisions are equal.
    expected = t.cdf(-0.005 * math.sqrt(2 / 0.02**2), 1)
    assert Sureness().chance(choice, [-0.02]) == pytest.approx(expected)
    # Several seeds: their own variance counts as one degree of freedom for each but the first.
    choice = Choice({}, margin=0.01, deviation=0.02, noise=0.03)
    pooled = (1 * 0.03**2 + 2 * 0.02**2) / 3
    prior, seen = 1 / 0.02**2, 3 / pooled
    mean = (prior * 0.01 + seen * 0.02) / (prior + seen)
    expected = t.cdf(mean * math.sqrt(prior + seen), 3)
    assert Sureness().chance(choice, [0.0, 0.02, 0.04]) == pytest.approx(expected)


def test_what_the_search_believed_counts_as_six_seeds_at_most() -> None:
    choice = Choice({}, margin=0.02, deviation=0.001, noise=0.02)
    pooled = 0.02**2
    expected = t.cdf(0.02 * math.sqrt(6 / pooled + 1 / pooled), 1)
    assert Sureness().chance(choice, [0.02]) == pytest.approx(expected)
    # One of three seeds failed: no belief outweighs that.
    assert Sureness().chance(choice, [0.03, 0.02, 0.01]) > 0.9
    assert Sureness().chance(choice, [0.03, 0.02, -0.42]) < 0.45


def test_sureness_moves_by_what_the_baseline_is_worse_on_the_other_rows() -> None:
    choice = Choice({}, margin=0.02, deviation=0.01, noise=1e3)  # the seeds say nothing
    many = Sureness(noise_degrees=10**6, most_seeds_worth=10**12)
    assert many.chance(choice, [0.0]) == pytest.approx(norm.cdf(2.0), abs=1e-4)
    assert many.chance(choice, [0.0], [-0.02]) == pytest.approx(0.5, abs=1e-4)
    # Offsets that differ are a doubt of their own: 0.01² + 0.02²·(1 + 1/2).
    offsets = [-0.02 - 0.02 / math.sqrt(2), -0.02 + 0.02 / math.sqrt(2)]
    doubt = math.sqrt(0.01**2 + 0.02**2 * 1.5)
    far = Choice({}, margin=0.04, deviation=0.01, noise=1e3)
    assert many.chance(far, [0.0], offsets) == pytest.approx(norm.cdf(0.02 / doubt), abs=1e-4)
