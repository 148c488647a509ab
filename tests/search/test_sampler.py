"""The sampler of the search for a target, on surfaces that are known."""

import math

import numpy as np
import optuna
import pytest

from bermo_ray.search.sampler import CONSTRAINT, TargetSampler, _from_unit_cube


def test_trap_the_sampler_sees_the_constraint() -> None:
    """Alone the size would lead to one end of the box; the constraint holds it in the middle."""
    spans = {"x": optuna.distributions.FloatDistribution(1, 100, log=True)}
    study = optuna.create_study(sampler=TargetSampler(0, spans, None))
    places = []
    for _ in range(20):
        trial = study.ask(dict(spans))
        x = math.log10(trial.params["x"]) / 2
        trial.set_constraint(CONSTRAINT, 0.5 - x)  # x of at least ½
        study.tell(trial, 0.3 + 0.2 * x)  # alone it would lead below
        places.append(x)
    assert np.abs(np.array(places[8:]) - 0.5).max() < 0.1
    best = min(
        (t for t in study.trials if t.constraints[CONSTRAINT] <= 0), key=lambda t: t.values[0]
    )
    assert math.log10(best.params["x"]) / 2 == pytest.approx(0.5, abs=0.05)


def test_places_at_the_edge_are_values_of_the_range() -> None:
    """e^(ln 1.5e-3) is a bit more than 1.5e-3: Optuna would draw at random instead."""
    ends = [(3e-4, 1.5e-3), (4e-2, 0.12), (1e-5, 1e-4), (3e-3, 0.2), (1.0, 40.0)]
    spans = [optuna.distributions.FloatDistribution(*end, log=True) for end in ends]
    low, high = _from_unit_cube(np.array([[0.0] * 5, [1.0] * 5]), spans)
    assert low == pytest.approx([end[0] for end in ends])
    assert high == pytest.approx([end[1] for end in ends])
    for value, span in (*zip(low, spans, strict=True), *zip(high, spans, strict=True)):
        assert span.low <= value <= span.high
    space = {str(i): span for i, span in enumerate(spans)}
    study = optuna.create_study(sampler=TargetSampler(0, space, "4"))
    for _ in range(12):  # the best is the far corner; a random draw would raise
        trial = study.ask(dict(space))
        far = [math.log(trial.params[n] / s.low, s.high / s.low) for n, s in space.items()]
        trial.set_constraint(CONSTRAINT, -1.0)
        study.tell(trial, math.exp(-sum(far)))
    assert study.best_value == pytest.approx(math.exp(-5), rel=0.2)


def test_a_point_is_not_tried_for_ever() -> None:
    """Once the best place is found, a gain below half a per cent is no reason to stay."""
    spans = {n: optuna.distributions.FloatDistribution(1, math.e, log=True) for n in "xy"}
    study = optuna.create_study(sampler=TargetSampler(0, spans, "x"))
    places = []
    for _ in range(30):
        trial = study.ask(dict(spans))
        x, y = (math.log(trial.params[n]) for n in "xy")
        trial.set_constraint(CONSTRAINT, -1.0)
        study.tell(trial, math.exp(-x - y - 0.3 * math.sin(6 * x) * math.sin(5 * y)))
        places.append((x, y))
    assert study.best_value < 1.01 * math.exp(-2 - 0.3 * math.sin(6) * math.sin(5))  # at (1, 1)
    gaps = np.linalg.norm(np.array(places)[:, None] - np.array(places)[None], axis=-1)
    assert np.sum(np.triu(gaps < 0.005, 1)) < 40  # of 435 pairs; 124 if any gain counts
