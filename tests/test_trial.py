import json
import subprocess
import sys

import pytest

from bermo_ray.errors import UserError
from bermo_ray.trial import (
    L0,
    Data,
    Distillation,
    Fusion,
    LayerDrop,
    Magnitude,
    Movement,
    Optimizer,
    SoftMovement,
    Trial,
)


def full() -> Trial:
    return Trial(
        data=Data(task="tense", train_rows=10, dev_rows=5, max_length=32, data_dir="/somewhere"),
        backbone="bert-base-uncased",
        fusion=Fusion(name="bermo", norm="depth", mixed_states=(0, 3)),
        layer_drop=LayerDrop(strategy="explicit", dropped_layers=(2, 5)),
        pruning=L0(multiplier=45.0, penalty="weight"),
        distillation=Distillation(teacher="t"),
        optimizer=Optimizer(warmup=7),
        epochs=6,
        seed=63,
    )


def test_json_both_ways_is_the_same_trial() -> None:
    for trial in (Trial(), full()):
        assert Trial.from_json(trial.to_json()) == trial
        assert Trial.from_dict(json.loads(trial.to_json())).id == trial.id


def test_identity_is_stable_across_processes_and_changes_with_content() -> None:
    code = "from bermo_ray.trial import Trial; print(Trial(seed=3).id)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == Trial(seed=3).id
    # Golden: a change of either orphans every stored trial.
    assert (Trial().id, full().id) == ("44136fa355b3", "7989d2ad7961")
    values = [Trial().replace({key: value}).id for key, value in {
        "seed": 1, "epochs": 4, "batch_size": 16, "backbone": "x", "mode": "features",
        "fusion.name": "bermo", "pruning.multiplier": 1.0, "optimizer.learning_rate": 1e-3,
        "data.task": "sst2", "layer_drop.count": 1, "distillation.teacher": "t",
    }.items()]  # fmt: skip
    assert len({Trial().id, *values}) == len(values) + 1


def test_methods_are_told_apart_even_where_all_is_default() -> None:
    trials = [Trial(pruning=kind()) for kind in (Magnitude, Movement, SoftMovement, L0)]
    assert len({trial.id for trial in trials}) == 4
    for trial in trials:
        again = Trial.from_json(trial.to_json())
        assert again == trial
        assert type(again.pruning) is type(trial.pruning)
    assert type(Trial().replace(pruning={"multiplier": 3.0}).pruning) is L0
    assert Movement(final_density=0.2).schedule_ends == (1.0, 0.2)
    assert SoftMovement().schedule_ends == (0.0, 0.1)
    assert L0().schedule_ends == (1.0, 1.0)


def test_defaults_never_change() -> None:
    # A changed default would give stored identities another meaning; a new field may be added.
    golden = {
        "data.task": "tense",
        "data.train_rows": None, "data.dev_rows": None, "data.max_length": 128,
        "backbone": "embedded", "fusion.name": "last", "fusion.norm": "layer",
        "fusion.dropout": 0.1, "fusion.weighting": "softmax", "fusion.learn_gamma": True,
        "fusion.alpha_init": "xavier", "fusion.mixed_states": None, "layer_drop": None,
        "pruning.flat_start": 1, "pruning.flat_end": 1, "freeze_embeddings": None,
        "distillation": None, "optimizer.learning_rate": 3e-5,
        "optimizer.score_learning_rate": 1e-2, "optimizer.fusion_learning_rate": 1e-2,
        "optimizer.weight_decay": 0.0,
        "optimizer.warmup": 0.1, "optimizer.max_gradient_norm": 1.0,
        "mode": "finetune", "epochs": 3, "batch_size": 32, "evaluations_per_epoch": 1, "seed": 0,
    }  # fmt: skip
    penalized = {"pruning.multiplier": 50.0, "pruning.penalty": "matrix"}
    ranked = {"pruning.initial_density": 1.0, "pruning.final_density": 0.1}
    for pruning, own in (
        (L0(), penalized | {"pruning.method": "l0", "pruning.initial_score": 2.197}),
        (
            SoftMovement(),
            penalized | {"pruning.initial_threshold": 0.0, "pruning.final_threshold": 0.1},
        ),
        (Movement(), ranked | {"pruning.scope": "local"}),
        (Magnitude(), ranked | {"pruning.scope": "local"}),
    ):
        assert (golden | own).items() <= Trial(pruning=pruning).flat().items()


def test_embeddings_are_frozen_while_pruning_unless_the_trial_says_otherwise() -> None:
    dense, pruned = Trial(), Trial(pruning=L0())
    assert (dense.embeddings_frozen, pruned.embeddings_frozen) == (False, True)
    assert dense.replace(freeze_embeddings=True).embeddings_frozen
    assert not pruned.replace(freeze_embeddings=False).embeddings_frozen
    line = "^freeze_embeddings: got False, but mode 'features' freezes them too$"
    with pytest.raises(UserError, match=line):
        dense.replace(mode="features", freeze_embeddings=False)


def test_where_the_data_lies_is_not_identity() -> None:
    assert Trial().replace(data={"data_dir": "/a"}).id == Trial().id


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(UserError) as caught:
        Trial.from_dict(
            {
                "fusion": {"nmae": "bermo", "norm": "batch"},
                "pruning": {"multiplier": -1},
                "optimizer": {"learning_rate": 0},
                "layer_drop": {"strategy": "explicit"},
                "epochs": "3",
                "mode": "features",
            }
        )
    lines = caught.value.problems
    assert len(lines) == 7
    text = "\n".join(lines)
    assert "unknown key 'fusion.nmae': did you mean fusion.name" in text
    assert "fusion.norm: got 'batch', expected 'layer', 'stack', 'depth' or 'none'" in text
    assert "pruning.multiplier: got -1, expected greater than or equal to 0" in text
    assert "optimizer.learning_rate: got 0, expected greater than 0" in text
    assert "epochs: got '3', expected a valid integer" in text
    assert "strategy 'explicit' and a list of dropped_layers go together" in text
    assert "mode 'features' freezes the weights that pruning would mask" in text


@pytest.mark.parametrize("text", ["[]", "3", "{", '{"fusion": 3}', '{"seed": NaN}', "null"])
def test_text_that_is_no_trial_is_a_users_error(text: str) -> None:
    with pytest.raises(UserError):
        Trial.from_json(text)


def test_nan_and_infinity_are_refused() -> None:
    with pytest.raises(UserError, match="finite"):
        Trial.from_json('{"optimizer": {"learning_rate": 1e999}}')


def test_a_trial_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Trial().seed = 1  # type: ignore[misc]


def test_warmup_is_steps_or_a_share() -> None:
    assert Trial().replace(optimizer={"warmup": 7}).warmup_steps(100) == 7
    assert Trial().replace(optimizer={"warmup": 0.25}).warmup_steps(100) == 25
    assert Trial().replace(optimizer={"warmup": 0}).warmup_steps(100) == 0


def test_flat_names_every_field() -> None:
    flat = full().flat()
    assert flat["pruning.multiplier"] == 45.0
    assert flat["fusion.mixed_states"] == "[0, 3]"
    assert Trial().flat()["pruning"] is None


def test_replace_leaves_what_it_is_given_alone() -> None:
    settings = {"method": "l0"}
    trial = Trial().replace({"pruning": settings, "pruning.flat_end": 3})
    assert trial.pruning is not None
    assert trial.pruning.flat_end == 3
    assert settings == {"method": "l0"}
