"""The combine block's choices one by one: trials, and verdicts on made-up results."""

from pathlib import Path
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.trial import Fusion
from tests.search.test_paper_settings import appendix, same_settings
from tests.support.result_rows import result_table
from tests.support.studies import load_script
from tests.support.study_sessions import FakeSession

script = load_script("combine_ablation")


def changed_fields(fusion: Fusion) -> dict[str, Any]:
    return {
        name: value
        for name, value in fusion.model_dump().items()
        if value != getattr(Fusion(name="bermo"), name)
    }


def test_default_trials_change_one_thing_each() -> None:
    trials = script.make_trials(script.Options())
    assert {name: changed_fields(group[0].fusion) for name, group in trials.items()} == {
        "default": {},
        "last (BERT)": {"name": "last"},
        "weights: raw": {"weighting": "raw"},
        "gamma: fixed at 1": {"learn_gamma": False},
        "alpha: from zeros": {"alpha_init": "zeros"},
        "norm: stack": {"norm": "stack"},
        "norm: depth": {"norm": "depth"},
        "norm: none": {"norm": "none"},
        "dropout: 0": {"dropout": 0.0},
        "states: upper half": {"mixed_states": (4, 5, 6)},
        "states: lower half": {"mixed_states": (0, 1, 2, 3)},
        "states: last two": {"mixed_states": (5, 6)},
        "states: no embeddings": {"mixed_states": (1, 2, 3, 4, 5, 6)},
        "opening: one by one": {"opening_share": 0.5},
        "mix: at every layer": {"name": "every_layer"},
    }
    grid = script.plan(script.Options()).trials
    assert len(grid) == 15 * 3
    assert len({t.replace(fusion=Fusion(), seed=0).id for t in grid}) == 1  # all else is equal
    standalone = load_script("standalone")
    dense = {t.id for t in standalone.plan(standalone.Options()).trials}
    assert len({t.id for t in grid} & dense) == 2 * 3  # the default and plain BERT


def test_papers_trials_have_the_settings_of_a_1_1_and_twelve_layers() -> None:
    options = script.Options(paper=True)
    trials = script.make_trials(options)
    assert len(script.plan(options).trials) == 15 * 3 * 3
    assert trials["states: upper half"][0].fusion.mixed_states == (7, 8, 9, 10, 11, 12)
    assert trials["states: lower half"][0].fusion.mixed_states == (0, 1, 2, 3, 4, 5, 6)
    for group in trials.values():
        assert {t.data.task for t in group} == {"sst2", "mnli", "qqp"}
        for trial in group:
            same_settings(trial, appendix("A.1.1", trial.data.task, "last"))


def test_some_choices_alone() -> None:
    trials = script.make_trials(script.Options(choices=("norm", "dropout"), seeds=(0,)))
    assert list(trials) == [
        "default", "last (BERT)", "norm: stack", "norm: depth", "norm: none", "dropout: 0",
    ]  # fmt: skip


def test_what_is_varied_can_not_be_set(tiny: str) -> None:
    with pytest.raises(UserError, match="^set: it makes 'dropout: 0' the default; leave it out"):
        script.plan(script.Options(overrides=("fusion.dropout=0.0",)))
    with pytest.raises(UserError, match="fusion.dropout: this study varies it; leave it out"):
        script.plan(script.Options(overrides=("fusion.dropout=0.2",)))
    with pytest.raises(UserError, match="^backbones: .* layers, expected 5 or more"):
        script.plan(script.Options(backbones=(tiny,)))


def test_the_verdict_names_what_differs(tmp_path: Path) -> None:
    options = script.Options(choices=("norm",), tasks=("tense", "paraphrase"))
    metrics = {"norm: none": 0.70, "last (BERT)": 0.60}
    rows = [
        {
            "task": trial.data.task, "backbone": "embedded", "seed": trial.seed,
            "status": "completed", "trial_id": trial.id,
            "metric": metrics.get(name, 0.80) + 0.002 * trial.seed,
        }
        for name, group in script.make_trials(options).items()
        for trial in options.make_grid(group).trials
    ]  # fmt: skip
    session = FakeSession(options, tmp_path, where="here")
    script.report(session, result_table(*rows))
    (verdict,) = session.verdicts
    assert verdict.value == pytest.approx(10.0)
    assert verdict.quantity == "of 3 single changes norm: none is worse than the default by"
    assert verdict.outcome == "agrees"
    lines = [line.split() for line in session.printed().splitlines()]
    # Welch's t of 4 degrees at 98.3 %: 3.961 · 0.2 · √(2/3) = 0.65 points.
    assert ["norm", "none", "70.20", "-10.00", "-10.65", "to", "-9.35", "settled"] in lines
    assert all(len(line) <= 80 for line in session.printed().split("verdict")[0].splitlines())
    assert (tmp_path / "ablation.png").is_file()
