"""``--paper`` against the appendices' tables, which were written down apart from it."""

from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.results.published import hyperparameters
from bermo_ray.search.paper_settings import paper_trial

PRUNING_TABLES = [("movement", "T7"), ("magnitude", "T8"), ("l0", "T9"), ("soft_movement", "T10")]


def appendix(table: str, task: str, fusion: str) -> dict[str, Any]:
    """The settings of a table for a task and fusion that a Trial has a field for."""
    rows = hyperparameters("bermo", table).to_pylist()
    return {
        row["setting"]: row["value"] if row["text"] is None else row["text"]
        for row in rows
        if "." in row["setting"] or row["setting"] in ("epochs", "batch_size")
        if row["task"] in (None, task) and row["fusion"] in (None, fusion)
        if row["text"] != "k"  # Table 7's epochs are varied
    }


def same_settings(trial: Any, settings: dict[str, Any]) -> None:
    flat = trial.flat()
    assert {name: flat[name] for name in settings} == settings


@pytest.mark.parametrize(("question", "table"), PRUNING_TABLES)
@pytest.mark.parametrize("task", ["mnli", "qqp", "squad"])
@pytest.mark.parametrize("fusion", ["last", "bermo"])
def test_pruning_is_as_in_tables_7_to_10(question: str, table: str, task: str, fusion: str) -> None:
    settings = appendix(table, task, fusion)
    assert len(settings) >= 9, settings
    same_settings(paper_trial(question, task, "bert-base-uncased", fusion), settings)


@pytest.mark.parametrize("fusion", ["last", "bermo"])
def test_stability_is_as_in_table_6(fusion: str) -> None:
    settings = appendix("T6", "sst2", fusion)
    assert settings["epochs"] == 25
    same_settings(paper_trial("movement", "sst2", "bert-base-uncased", fusion), settings)


@pytest.mark.parametrize("task", ["sst2", "mnli", "qqp", "squad", "senteval/past_present"])
def test_dense_training_is_as_in_a_1_1(task: str) -> None:
    settings = appendix("A.1.1", task, "last")
    assert settings["epochs"] == 3
    same_settings(paper_trial("dense", task, "bert-base-uncased"), settings)


def test_fusion_is_trained_as_in_dwatt_9_1() -> None:
    rows = hyperparameters("dwatt", "9.1").to_pylist()
    for question, tasks in (("few_shot", (None, "conll2003")), ("masked", (None, "wikitext2"))):
        trial = paper_trial(question, tasks[1], "roberta-large")
        settings = {r["setting"]: r["value"] for r in rows if r["task"] in tasks and r["value"]}
        known = {name: value for name, value in settings.items() if name in trial.flat()}
        assert {"batch_size", "optimizer.learning_rate"} <= set(known)
        same_settings(trial, known)
        assert trial.optimizer.warmup == 0
    assert paper_trial("masked", "wikitext2", "roberta-large").final_checkpoint == "best_loss"


def test_layer_dropping_has_three_epochs() -> None:
    (row,) = hyperparameters("layer_dropping", "4").to_pylist()
    assert row["setting"] == "epochs"
    assert paper_trial("layer_drop", "qqp", "bert-base-uncased").epochs == row["value"]


def test_what_no_paper_ran_is_one_line() -> None:
    with pytest.raises(UserError) as caught:
        paper_trial("l0", "sst2", "bert-base-uncased")
    assert caught.value.problems == ("task: got sst2, but L0 pruning was run on mnli, qqp, squad",)
    with pytest.raises(UserError, match="^unknown question 'movment': did you mean movement"):
        paper_trial("movment", "sst2", "bert-base-uncased")
