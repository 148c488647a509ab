"""Dialects: one exchange of words for all rows, and nothing else changed."""

import pytest

from bermo_ray.language import lexicon as lex
from bermo_ray.language.dialects import DIALECTS, exchanged_words, generate_dialect
from bermo_ray.language.tasks import generate
from bermo_ray.tasks.registry import get_task
from bermo_ray.trial import Data
from tests.language.test_tasks import digest

# A changed hash means a changed dialect: numbers from before are no longer comparable.
GOLDEN = {"entities/dialect30": "9bb606522c84", "entities/dialect60": "76f8e83d349a"}


@pytest.mark.parametrize("name", DIALECTS)
def test_rows_are_those_of_the_golden_hash(name: str) -> None:
    assert digest(generate_dialect(name, "train", 60, 7)) == GOLDEN[name]


@pytest.mark.parametrize("percent", DIALECTS.values())
def test_a_share_of_the_words_changes_places(percent: int) -> None:
    exchanged = exchanged_words(percent)
    words = [word for word in lex.VOCABULARY if word not in (",", ".", "?")]
    assert len(exchanged) == round(percent / 100 * len(words))
    assert set(exchanged) == set(exchanged.values()) <= set(words)
    assert all(word != other for word, other in exchanged.items())
    assert exchanged == exchanged_words(percent)


def test_a_dialect_further_off_exchanges_the_words_of_a_nearer_one_too() -> None:
    assert set(exchanged_words(30)) < set(exchanged_words(60))
    assert exchanged_words(0) == {}


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("split", lex.SPLITS)
def test_rows_are_those_of_entities_word_by_word(name: str, split: str) -> None:
    rows = generate("entities", split, 40, 0)
    exchanged = exchanged_words(DIALECTS[name])
    dialect = generate_dialect(name, split, 40, 0)
    assert dialect.schema == rows.schema
    assert dialect["tags"] == rows["tags"]
    changed = 0
    for plain, told in zip(rows["words"].to_pylist(), dialect["words"].to_pylist(), strict=True):
        assert told == [exchanged.get(word, word) for word in plain]
        changed += told != plain
    assert changed > 20


@pytest.mark.parametrize("name", DIALECTS)
def test_a_trial_can_name_it(name: str) -> None:
    task, entities = get_task(name), get_task("entities")
    assert (task.name, task.labels, task.metric) == (name, entities.labels, "entity_f1")
    data = Data(task=name, dev_rows=30)
    rows = task.take_rows(data, "dev", 0)
    assert rows["words"] == generate_dialect(name, "dev", 30, 0)["words"]
    plain = entities.take_rows(Data(task="entities", dev_rows=30), "dev", 0)
    assert plain["words"] == generate("entities", "dev", 30, 0)["words"]
    assert task.open_source(data, "dev").stamp() != entities.open_source(data, "dev").stamp()
