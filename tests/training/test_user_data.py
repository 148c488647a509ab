"""Trials on own data of every kind, trained for real on a tiny encoder."""

import json
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.tasks.user_data import describe_user_data
from bermo_ray.training.check import check_trials
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial
from tests.support.task_files import data_in, write_text
from tests.support.user_files import write_rows

WORDS = ("dog", "cat", "bird", "horse")


def sentence(i: int) -> str:
    return f"the {WORDS[i % 4]} sees the {WORDS[i // 4 % 4]} {'.' * (1 + i % 3)}"


def write_kind(folder: Path, kind: str) -> Path:
    """48 rows of a kind."""
    numbers = range(48)
    if kind == "span":
        paragraphs = [
            {
                "context": f"{sentence(i)} {i}",
                "qas": [
                    {
                        "question": "who sees ?",
                        "answers": [{"text": WORDS[i % 4], "answer_start": 4}],
                    }
                ],
            }
            for i in numbers
        ]
        return write_text(folder, "a.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    if kind == "masked":
        return write_text(folder, "a.txt", "\n".join(map(sentence, numbers)))
    if kind == "tags":
        tagged = "\n\n".join(f"the O\n{WORDS[i % 4]} B-ANIMAL\nsees O" for i in numbers)
        return write_text(folder, "a.conll", tagged)
    rows: list[dict[str, Any]] = [
        {"text1": sentence(i), "text2": sentence(i + 1), "label": [0.25, 0.5, 1.0, 2.0][i % 4]}
        for i in numbers
    ]
    if kind == "classification":
        rows = [{"text": sentence(i), "label": WORDS[i % 4]} for i in numbers]
    return write_rows(folder / "a.tsv", rows)


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [
        ("classification", {"accuracy", "matthews"}),
        ("regression", {"spearman", "pearson"}),
        ("tags", {"entity_f1", "tag_accuracy"}),
        ("span", {"span_f1", "exact_match"}),
        ("masked", {"masked_accuracy", "perplexity"}),
    ],
)
def test_every_kind_is_trained(tiny: str, tmp_path: Path, kind: Any, metrics: set[str]) -> None:
    asked = kind if kind == "masked" else None  # the others are guessed
    user = describe_user_data(write_kind(tmp_path, kind), kind=asked, dev_share=0.25)
    assert user.kind == kind
    trial = Trial(
        data=Data(task="mine", user=user, max_length=32),
        backbone=tiny,
        optimizer=Optimizer(learning_rate=2e-3),
        epochs=1,
        batch_size=12,
    )
    check_trials([trial])
    report = run_locally(trial)[-1]
    assert {user.metric, *report.other_metrics} == metrics
    assert report.step == 3  # 36 rows in batches of 12


def test_own_files_give_the_rows_of_our_own_tasks(tmp_path: Path) -> None:
    from bermo_ray.tasks.registry import resolve_task

    squad = write_kind(tmp_path, "span")
    write_text(tmp_path, "squad/train-v1.1.json", squad.read_bytes())
    ours = data_in(tmp_path, "squad")
    theirs = Data(task="mine", user=describe_user_data(squad, squad))
    tables = [resolve_task(data).read_rows(data, "train") for data in (ours, theirs)]
    assert tables[0].equals(tables[1])

    text = "Anna B-PER\nslept O\n\nin O\nParis B-LOC\nand O\nOslo B-LOC\n"
    write_text(tmp_path, "conll2003/train.txt", text)
    file = write_text(tmp_path, "a.conll", text)
    ours, theirs = (
        data_in(tmp_path, "conll2003"),
        Data(task="m", user=describe_user_data(file, file)),
    )
    tasks = [resolve_task(data) for data in (ours, theirs)]
    named = [
        [
            [task.labels[tag] for tag in row]
            for row in task.read_rows(data, "train")["tags"].to_pylist()
        ]
        for task, data in zip(tasks, (ours, theirs), strict=True)
    ]
    assert named[0] == named[1] == [["B-PER", "O"], ["O", "B-LOC", "O", "B-LOC"]]
