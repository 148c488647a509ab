import pyarrow as pa

from bermo_ray.results.report.arms import (
    label_recipes,
    split_panels,
    spread_baselines,
    with_arms,
)
from bermo_ray.trial import L0, Distillation, Fusion, Movement, Optimizer, Trial
from tests.support.result_rows import result_table


def row(trial: Trial, **changes: object) -> dict[str, object]:
    method = trial.pruning.method if trial.pruning else "dense"
    return {
        "task": trial.data.task, "backbone": trial.backbone, "fusion": trial.fusion.name,
        "method": method, "remaining": 1.0 if method == "dense" else 0.5, "seed": trial.seed,
        "trial_json": trial.to_json(), "run_id": f"{method}-{trial.fusion.name}",
    } | changes  # fmt: skip


BERMO = Fusion(name="bermo")


def arms(*trials: Trial, name_dense: bool = False) -> list[str]:
    return with_arms(result_table(*map(row, trials)), name_dense)["arm"].to_pylist()


def test_an_arm_names_what_the_study_compares() -> None:
    l0, movement = L0(), Movement()
    assert arms(Trial(fusion=BERMO), Trial(pruning=l0), Trial()) == ["last", "last", "bermo"]
    assert arms(Trial(pruning=l0), Trial(), name_dense=True) == ["last, dense", "last, l0"]
    assert arms(Trial(pruning=l0), Trial(pruning=movement)) == ["last, l0", "last, movement"]
    taught = Trial(distillation=Distillation(teacher="t"))
    assert arms(Trial(), taught) == ["last", "last, with a teacher"]


def test_dense_trials_are_the_right_end_of_every_arm_of_their_fusion() -> None:
    l0, movement = L0(), Movement()
    trials = [Trial(), Trial(pruning=l0), Trial(pruning=movement), Trial(fusion=BERMO)]
    table = spread_baselines(with_arms(result_table(*map(row, trials))))
    pairs = set(zip(table["arm"].to_pylist(), table["run_id"].to_pylist(), strict=True))
    assert pairs == {
        ("last, l0", "l0-last"),
        ("last, l0", "dense-last"),
        ("last, movement", "movement-last"),
        ("last, movement", "dense-last"),
    }
    only_dense = with_arms(result_table(row(Trial())))
    assert spread_baselines(only_dense).equals(only_dense)


def test_recipes_are_told_by_the_settings_that_differ() -> None:
    fast = Trial(optimizer=Optimizer(learning_rate=1e-3))
    slow = fast.replace(optimizer={"learning_rate": 1e-4})
    pruned = slow.replace(pruning=L0(multiplier=2.0), seed=5)

    def labels(*trials: Trial) -> list[str]:
        return label_recipes(with_arms(result_table(*map(row, trials)), name_dense=True))

    assert labels(fast, slow) == ["last, learning_rate 0.001", "last, learning_rate 0.0001"]
    assert labels(fast, fast.replace(seed=7)) == ["last", "last"]
    # Of one pruned trial there is nothing that its own settings could differ from.
    assert labels(slow, pruned) == ["last, dense", "last, l0"]
    stronger = pruned.replace(pruning={"multiplier": 3.0})
    names = ["last, dense", "last, l0, multiplier 2", "last, l0, multiplier 3"]
    assert labels(slow, pruned, stronger) == names


def test_a_panel_is_named_by_what_differs() -> None:
    table = result_table(
        row(Trial()), row(Trial(), task="depth"), row(Trial(), backbone="models/small")
    )
    titles = [title for title, _ in split_panels(table)]
    assert titles == ["tense, embedded", "depth, embedded", "tense, small"]
    assert [title for title, _ in split_panels(table.slice(0, 2))] == ["tense", "depth"]
    assert [title for title, _ in split_panels(table.slice(0, 1))] == [""]
    assert sum(rows.num_rows for _, rows in split_panels(table)) == 3
    assert list(split_panels(pa.Table.from_pylist([], table.schema))) == []
