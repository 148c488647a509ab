"""Which mixes of fusion, teacher, dropping and pruning are trained."""

from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.search.recommended import recommended_trial
from bermo_ray.trial import Penalized, Trial
from tests.support.studies import load_script


@pytest.fixture
def script() -> Any:
    return load_script("everything")


def plan(script: Any, **options: Any) -> list[Trial]:
    asked = script.Options(**options)
    trials: list[Trial] = script.plan(
        asked, {trial.id: "/teacher" for trial in script.teachers(asked)}
    ).trials
    return trials


def density(trial: Trial) -> float:
    if trial.pruning is None:
        return 1.0
    assert isinstance(trial.pruning, Penalized)
    assert trial.pruning.target_density is not None
    return trial.pruning.target_density


def count(trial: Trial) -> int:
    return trial.layer_drop.count if trial.layer_drop else 0


def test_by_default_every_size_count_fusion_and_teacher(script: Any) -> None:
    trials = plan(script)
    assert len(trials) == 2 * (2 + 2 * 2 * 2 * 2)
    first = [trial for trial in trials if trial.seed == 0]
    complete, mixes = first[:2], first[2:]
    dense = recommended_trial("dense", "embedded").replace(data={"task": "tense"})
    assert [t.id for t in complete] == [dense.replace(fusion=name).id for name in ("last", "bermo")]
    kinds = {
        (t.fusion.name, t.distillation is not None, count(t), round(density(t), 6)) for t in mixes
    }
    assert kinds == {
        (fusion, taught, *rest)
        for fusion in ("last", "bermo")
        for taught in (False, True)
        for rest in ((0, 0.5), (2, 0.75), (0, 0.2), (2, 0.3))
    }
    assert {t.distillation.teacher for t in trials if t.distillation} == {"/teacher"}


def test_the_teacher_is_a_complete_model_of_the_first_seed(script: Any) -> None:
    (teacher,) = script.teachers(script.Options(seeds=(3, 4)))
    dense = recommended_trial("dense", "embedded").replace(data={"task": "tense"}, seed=3)
    assert teacher.id == dense.id


def test_a_given_teacher_takes_its_place(script: Any, tmp_path: Any) -> None:
    options = {"teacher": str(tmp_path), "sizes": (0.5,), "counts": (0,), "seeds": (0,)}
    assert script.teachers(script.Options(**options)) == []
    trials = plan(script, **options)
    taught = [t.distillation.teacher for t in trials if t.distillation]
    assert (len(trials), taught) == (6, [str(tmp_path)] * 2)


def test_every_size_is_made_up_of_layers_and_density(script: Any, deeper: str) -> None:
    trials = plan(
        script, backbone=deeper, sizes=(0.5,), counts=(0, 1, 2, 3), seeds=(4,), fusions=("last",)
    )
    assert (trials[0].pruning, trials[0].layer_drop) == (None, None)
    mixes = [trial for trial in trials[1:] if trial.distillation is None]
    assert [count(trial) for trial in mixes] == [0, 1, 2]  # one of four layers is less than half
    assert [density(trial) for trial in mixes] == pytest.approx([1 / 2, 2 / 3, 1.0])


def test_all_mixes_train_their_embeddings(script: Any, deeper: str) -> None:
    _, *mixes = plan(script, backbone=deeper, sizes=(0.5,), counts=(0, 2), fusions=("last",))
    assert {trial.pruning is not None for trial in mixes} == {True, False}
    assert {t.freeze_embeddings for t in mixes if t.pruning or t.layer_drop} == {False}


def test_soft_movement_has_a_constant_threshold(script: Any) -> None:
    trials = plan(script, method="soft_movement", sizes=(0.5,), counts=(0,), seeds=(0,))
    ends = {t.pruning.schedule_ends for t in trials if t.pruning}
    assert ends == {(0.1, 0.1)}


def test_no_paper_has_it(script: Any) -> None:
    with pytest.raises(UserError, match="no paper asked this question"):
        script.Options(paper=True).check_paper()
