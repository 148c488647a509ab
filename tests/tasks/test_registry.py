"""Tasks by name, and those that a plug-in adds."""

import pickle
from dataclasses import replace

import pytest

from bermo_ray.errors import UserError
from bermo_ray.tasks import registry
from bermo_ray.tasks.heads import HEADS


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown task 'tence': did you mean tense"):
        registry.get_task("tence")


def test_a_registered_task_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TASKS", dict(registry.TASKS))
    task = replace(registry.get_task("tense"), name="mine")
    registry.register_task(task)
    assert registry.get_task("mine") is task
    with pytest.raises(UserError, match="unknown task 'mined': did you mean mine"):
        registry.get_task("mined")


@pytest.mark.parametrize("name", ["tense", "sst2", "wikiann/sw"])
def test_a_name_is_never_taken_twice(name: str) -> None:
    task = replace(registry.get_task("tense"), name=name)
    with pytest.raises(UserError, match=f"got '{name}', expected a name that no other task has"):
        registry.register_task(task)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_kind_is_the_same_in_another_process(name: str) -> None:
    head = HEADS[name]
    copy = pickle.loads(pickle.dumps(head))
    assert copy == head
    assert len({copy, head}) == 1
    assert str(head) == name
    assert [other for other in HEADS.values() if other == copy] == [head]
