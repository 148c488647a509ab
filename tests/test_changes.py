"""How a trial is changed and varied."""

from pathlib import Path

import numpy as np
import pytest

from bermo_ray.changes import lay_over
from bermo_ray.errors import UserError
from bermo_ray.trial import (
    L0,
    SECTION_NAMES,
    Data,
    Fusion,
    LayerDrop,
    Movement,
    Optimizer,
    SoftMovement,
    Trial,
    TrialFields,
)


def test_a_mapping_is_laid_over_a_section_and_a_section_takes_its_place() -> None:
    trial = Trial(fusion=Fusion(name="bermo", norm="none"), optimizer=Optimizer(warmup=5))
    changed = trial.replace(fusion={"dropout": 0.5}, optimizer=Optimizer(learning_rate=1e-3))
    assert changed.fusion == Fusion(name="bermo", norm="none", dropout=0.5)
    assert changed.optimizer == Optimizer(learning_rate=1e-3)
    assert trial.fusion.dropout == 0.1
    assert (
        changed.replace({"fusion.dropout": 0.1, "optimizer.warmup": 5}).replace(
            optimizer={"learning_rate": 3e-5}
        )
        == trial
    )


def test_dotted_names_are_those_of_flat_and_keywords_come_after_them() -> None:
    trial = Trial(pruning=L0(multiplier=3.0), layer_drop=LayerDrop(count=2))
    values = {name: value for name, value in trial.flat().items() if value is not None}
    assert Trial().replace(values) == trial
    assert Trial().replace({"seed": 1, "epochs": 9}, seed=2) == Trial(seed=2, epochs=9)


@pytest.mark.parametrize("section", SECTION_NAMES)
def test_a_string_stands_for_what_a_section_goes_by(section: str) -> None:
    name = {"pruning": "movement", "layer_drop": "bottom"}.get(section, "x")
    by_string = Trial().replace({section: name})
    assert by_string == Trial().replace({f"{section}.{SECTION_NAMES[section]}": name})
    assert by_string.flat()[f"{section}.{SECTION_NAMES[section]}"] == name


def test_another_method_of_pruning_begins_with_its_own_defaults() -> None:
    trial = Trial(pruning=L0(multiplier=3.0, flat_end=2))
    assert trial.replace(pruning="movement").pruning == Movement()
    assert trial.replace(pruning={"method": "soft_movement"}).pruning == SoftMovement()
    same = trial.replace(pruning={"method": "l0", "flat_start": 0})
    assert same.pruning == L0(multiplier=3.0, flat_end=2, flat_start=0)
    assert trial.replace(pruning="l0") == trial
    assert trial.replace(pruning=None).pruning is None
    assert Trial().replace(pruning={"multiplier": 4.0}).pruning == L0(multiplier=4.0)


def test_what_it_is_given_is_left_alone() -> None:
    settings = {"method": "l0"}
    changed = Trial().replace({"pruning": settings, "pruning.flat_end": 3})
    assert changed.pruning == L0(flat_end=3)
    assert settings == {"method": "l0"}


def test_vary_gives_every_combination_and_the_first_varies_slowest() -> None:
    base = Trial(epochs=1)
    trials = base.vary(fusion=["last", "bermo"], seed=range(3))
    assert [(t.fusion.name, t.seed) for t in trials] == [
        ("last", 0), ("last", 1), ("last", 2), ("bermo", 0), ("bermo", 1), ("bermo", 2),
    ]  # fmt: skip
    assert {t.epochs for t in trials} == {1}
    assert base.vary() == [base]


def test_vary_takes_sections_mappings_dotted_names_and_what_numpy_makes() -> None:
    by_mapping = Trial().vary(pruning={"multiplier": [1.0, 2.0], "flat_end": [0, 1]})
    by_name = Trial().vary({"pruning.multiplier": np.array([1.0, 2.0]), "pruning.flat_end": [0, 1]})
    assert by_mapping == by_name
    assert [t.pruning for t in by_mapping] == [
        L0(multiplier=m, flat_end=e) for m in (1.0, 2.0) for e in (0, 1)
    ]
    sections = [None, L0(), Movement(final_density=0.2)]
    assert [t.pruning for t in Trial().vary(pruning=sections)] == sections
    states = Trial().vary(fusion={"mixed_states": [[0, 1], None]})
    assert [t.fusion.mixed_states for t in states] == [(0, 1), None]
    assert Trial().replace(data={"data_dir": Path("/a")}).data == Data(data_dir="/a")


def test_every_field_is_typed_for_replace() -> None:
    assert list(TrialFields.__annotations__) == list(Trial.model_fields)


def test_bad_changes_are_told_with_the_nearest_name() -> None:
    for change, line in (
        ({"sed": 1}, "unknown key 'sed': did you mean seed?"),
        ({"fusion_name": "bermo"}, "unknown key 'fusion_name': did you mean fusion"),
        ({"optimizer.warmpu": 1}, "unknown key 'optimizer.warmpu': did you mean optimizer.warmup"),
        ({"pruning": {"lamda": 1}}, "unknown key 'pruning.lamda': "),
        ({"pruning": "movment"}, "unknown pruning.method 'movment': did you mean movement"),
        ({"optimizer": "adam"}, "optimizer: got 'adam', expected an object"),
        ({"seed": object}, "got <class 'object'>, expected plain values"),
    ):
        with pytest.raises(UserError) as caught:
            Trial().replace(change)
        assert caught.value.problems[0].startswith(line)
        with pytest.raises(UserError):
            Trial().vary({name: [value] for name, value in change.items()})
    with pytest.raises(UserError) as caught:
        Trial().vary(seed=3, fusion="bermo", pruning=L0(), epochs=[1])
    assert [problem.split(", as")[0] for problem in caught.value.problems] == [
        "seed: got 3, expected several values to vary over",
        "fusion: got 'bermo', expected several values to vary over",
        f"pruning: got {L0()!r}, expected several values to vary over",
    ]
    with pytest.raises(UserError, match="^seed: got no values to vary over$"):
        Trial().vary(seed=[])


def test_a_notebook_shows_what_differs_from_the_default() -> None:
    trial = Trial(seed=3, pruning=L0(), warm_start="<b>")
    assert trial.describe_changes() == {
        "data.task": "tense", "fusion.name": "last", "warm_start": "<b>", "seed": 3,
        **{f"pruning.{name}": value for name, value in L0().model_dump().items() if value},
    }  # fmt: skip
    shown = trial._repr_html_()
    assert trial.id in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "max_length" not in shown


def test_a_section_within_a_section_is_laid_over_too() -> None:
    values = {"data": {"task": "mine", "user": {"label": "stars", "split_seed": 0}}}
    for change in ({"data.user.split_seed": 1}, {"data": {"user": {"split_seed": 1}}}):
        changed = lay_over(values, change, {})
        assert changed == {"data": {"task": "mine", "user": {"label": "stars", "split_seed": 1}}}
    assert lay_over(values, {"data.user": None}, {}) == {"data": {"task": "mine", "user": None}}
