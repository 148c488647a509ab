"""Rows that are left to say how good a choice is."""

import json
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.errors import UserError
from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.search.frontier_search import FrontierSearch
from bermo_ray.search.grid import Grid
from bermo_ray.search.layer_count_search import LayerCountSearch
from bermo_ray.search.plan import Plan
from bermo_ray.search.target_search import TargetSearch
from bermo_ray.study import Study
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import get_task
from bermo_ray.tracking.store import Store
from bermo_ray.training.check import check_trials
from bermo_ray.trial import Trial
from tests.support.questions import CONTEXT
from tests.support.task_files import data_in, write_parquet, write_text

LINE = (
    "data.dev_rows: 12 dev rows leave 6 to verify sst2 on, expected >= 10; give more, or "
    "`whole_dev`"
)


def sst2_trial(tiny: str, folder: Path, **changes: Any) -> Trial:
    """A trial with 40 rows to train on and as many to measure on."""
    columns = {"sentence": ["the dog slept ."] * 40, "label": [0, 1] * 20}
    for part in ("train", "validation"):
        write_parquet(folder, f"glue/sst2/{part}.parquet", columns)
    return Trial(data=data_in(folder, "sst2"), backbone=tiny).replace(changes)


def find_problems(trial: Trial, chooses: bool) -> tuple[str, ...]:
    try:
        check_trials([trial], chooses=chooses)
    except UserError as error:
        return tuple(error.problems)
    return ()


def test_too_few_rows_to_verify_on_are_one_line(tiny: str, tmp_path: Path) -> None:
    trial = sst2_trial(tiny, tmp_path, data={"dev_rows": 12})
    assert find_problems(trial, chooses=True) == (LINE,)
    assert find_problems(trial, chooses=False) == ()
    assert find_problems(trial.replace(data={"whole_dev": True}), chooses=True) == ()
    # A share of them; and the odd row is of the selection half.
    assert find_problems(trial.replace(data={"dev_rows": 0.3}), chooses=True) == (LINE,)
    (nineteen,) = find_problems(trial.replace(data={"dev_rows": 19}), chooses=True)
    assert nineteen == LINE.replace("12", "19").replace("6", "9")
    assert find_problems(trial.replace(data={"dev_rows": 20}), chooses=True) == ()
    assert find_problems(trial.replace(data={"dev_rows": None}), chooses=True) == ()


def test_a_best_checkpoint_is_a_choice_too(tiny: str, tmp_path: Path) -> None:
    trial = sst2_trial(tiny, tmp_path, data={"dev_rows": 12}, final_checkpoint="best")
    assert find_problems(trial, chooses=False) == (LINE,)
    assert find_problems(trial.replace(data={"whole_dev": True}), chooses=False) == ()
    # Trials that share their data are told apart, and the same problem is told once.
    last = trial.replace(final_checkpoint="last")
    with pytest.raises(UserError) as caught:
        check_trials([last, trial, trial.replace(seed=1)])
    assert caught.value.problems == (LINE,)


def test_a_test_part_verifies_where_it_is_there(tiny: str, tmp_path: Path) -> None:
    rows = [f"{part}\tPAST\tHe slept .\n" for part in ("tr", "va") for _ in range(12)]
    data = data_in(tmp_path, "senteval/past_present")
    trial = Trial(data=data, backbone=tiny, batch_size=4)
    write_text(tmp_path, "senteval/past_present.txt", "".join(rows))
    line = LINE.replace("sst2", "senteval/past_present")
    assert find_problems(trial, chooses=True) == (line,)
    write_text(tmp_path, "senteval/past_present.txt", "".join(rows) + "te\tPRES\tHe sleeps .\n")
    assert find_problems(trial, chooses=True) == ()


def test_questions_count_not_their_windows(tiny: str, tmp_path: Path) -> None:
    context = CONTEXT + " the dog slept in the garden ." * 3
    answers = [{"text": "man", "answer_start": context.index("man")}]
    questions = [{"id": str(n), "question": "who slept ?", "answers": answers} for n in range(12)]
    text = json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]})
    for part in ("train", "dev"):
        write_text(tmp_path, f"squad/{part}-v1.1.json", text)
    data = data_in(tmp_path, "squad", max_length=24)
    windows = encode_split(get_task("squad"), data, "dev", 0, load_tokenizer(tiny))
    assert len(windows) > 24
    trial = Trial(data=data, backbone=tiny, batch_size=4)
    assert find_problems(trial, chooses=True) == (LINE.replace("sst2", "squad"),)


def test_plans_that_choose_say_so(tiny: str, tmp_path: Path) -> None:
    assert not Plan.chooses
    assert not Grid.chooses
    assert all(plan.chooses for plan in (LayerCountSearch, FrontierSearch, TargetSearch))
    trial = sst2_trial(tiny, tmp_path, data={"dev_rows": 12})
    counts = LayerCountSearch([(trial, 1)], "top", (1.0,), (0,))
    store = Store(tmp_path / "runs")
    Study("s", Grid([trial]), store=store, backend="process").check()
    with pytest.raises(UserError) as caught:
        Study("s", counts, store=store, backend="process").check()
    assert caught.value.problems == (LINE,)
