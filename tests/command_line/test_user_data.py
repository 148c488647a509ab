"""Own data and models on the command line: every study takes them, and mistakes are one line."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bermo_ray import results
from bermo_ray.command_line.options import ManyTasksOptions, OneTaskOptions
from bermo_ray.errors import UserError
from bermo_ray.export import export_trial
from bermo_ray.tracking.store import store_uri
from tests.studies.test_every_study import STUDIES
from tests.support.studies import load_script, run_script
from tests.support.user_files import reviews, write_rows


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def call(*options: str, name: str = "standalone") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        return run_script(monkeypatch, capsys, name, *options)

    return call


@pytest.fixture
def user_rows(tmp_path: Path) -> tuple[str, ...]:
    file = write_rows(tmp_path / "reviews.csv", reviews(160))
    return ("--train", str(file), "--text", "review", "--label", "stars")


@pytest.fixture
def fine_tuned(tiny: str, tmp_path: Path) -> Path:
    """A stock classifier of the reviews, its labels in another order than the alphabet's."""
    folder = tmp_path / "fine_tuned"
    torch.manual_seed(1)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(
        tiny, id2label={0: "good", 1: "bad"}, label2id={"good": 0, "bad": 1}
    )
    network.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_the_options(name: str) -> None:
    options = {field.name for field in fields(load_script(name).Options)}
    assert options >= {"train", "dev", "test", "dataset", "text", "label", "kind", "start"}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_plans_trials_on_own_data(
    run: Any, user_rows: tuple[str, ...], tmp_path: Path, name: str
) -> None:
    if name == "mlm_fusion":
        (tmp_path / "mine.txt").write_text("the dog sees the cat .\n" * 200)
        user_rows = ("--train", "mine.txt", "--kind", "masked", "--whole-dev")
    code, out, err = run(*user_rows, "--dry-run", name=name)
    assert (code, err) == (0, "")
    task = "mine" if name == "mlm_fusion" else "reviews"
    assert f"task {task}" in " ".join(out.split()) or f" {task} " in out


def test_own_data_is_the_task(user_rows: tuple[str, ...], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"train": user_rows[1], "text": ("review",), "label": "stars"}
    one = OneTaskOptions(**settings).base_trial("dense")
    (many,) = ManyTasksOptions(**settings).base_trials("dense")
    assert one == many
    assert one.data.task == "reviews"
    assert one.data.user is not None
    assert one.data.user.train == str(tmp_path / "reviews.csv")
    named = OneTaskOptions(**settings, task="stars").base_trial("dense")
    assert named.data.task == "stars"
    with pytest.raises(UserError, match="tasks: your own data is one task; got a, b"):
        ManyTasksOptions(**settings, tasks=("a", "b")).base_trials("dense")


@pytest.mark.slow
def test_from_a_csv_to_a_folder_that_has_the_labels(
    run: Any, user_rows: tuple[str, ...], tiny: str, tmp_path: Path
) -> None:
    code, out, err = run(
        *user_rows, "--backend", "process", "--backbones", tiny, "--seeds", "0", "--epochs", "1",
        "--runs", "runs", "--name", "s", "--learning-rate", "1e-3",
    )  # fmt: skip
    assert code == 0, err
    assert "reviews, dev: reviews.csv (20% of its rows)" in out
    uri = store_uri(tmp_path / "runs")
    rows = results.load("s", uri).to_pylist()
    assert [row["task"] for row in rows] == ["reviews", "reviews"]
    last = next(row for row in rows if row["fusion"] == "last")
    export_trial(last["trial_id"], tmp_path / "out", uri)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    # The same study again takes what is there; other contents are trained anew.
    again = (*user_rows, "--backbones", tiny, "--seeds", "0", "--epochs", "1", "--runs", "runs",
             "--learning-rate", "1e-3", "--dry-run")  # fmt: skip
    assert "2 trials taken from s" in run(*again)[1]
    write_rows(tmp_path / "reviews.csv", reviews(161))
    assert "taken" not in run(*again)[1]


def test_a_fine_tuned_folder_is_the_start_and_the_encoder(
    run: Any, user_rows: tuple[str, ...], fine_tuned: Path
) -> None:
    options = OneTaskOptions(
        train=user_rows[1], text=("review",), label="stars", start=str(fine_tuned)
    )
    trial = options.base_trial("dense")
    assert (trial.backbone, trial.warm_start) == (str(fine_tuned), str(fine_tuned))
    code, out, err = run(*user_rows, "--start", str(fine_tuned), "--dry-run")
    assert (code, err) == (0, "")
    assert "encoder fine_tuned" in " ".join(out.split())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--label", "starz"], "reviews.csv: no column 'starz'; it has id, review, stars"),
        (["--train", "none.csv"], "--train: no file none.csv"),
        (["--dev", "empty.csv"], "empty.csv: no rows"),
        (["--dev", "other.csv"], "line 3: label 'odd' is in no training row; they have bad, good"),
        (["--kind", "regression"], "line 2: 'bad' is no number; give --kind classification"),
        (["--metric", "spearman"], "--metric: got 'spearman', classification has accuracy, f1"),
        (["--tasks", "sst2"], "--tasks: 'sst2' is a task already; give your own another name"),
        (["--dev-share", "0.001"], "of 160 rows leaves none to measure on; give --dev"),
        (["--start", "three"], "--start: its labels are not the task's: the task alone has bad, g"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    run: Any,
    user_rows: tuple[str, ...],
    fine_tuned: Path,
    tmp_path: Path,
    options: list[str],
    line: str,
) -> None:
    (tmp_path / "empty.csv").write_text("review,stars\n")
    rows = [{"review": "a", "stars": "good"}, {"review": "b", "stars": "odd"}]
    write_rows(tmp_path / "other.csv", rows)
    three = transformers.AutoConfig.from_pretrained(fine_tuned)
    three.id2label, three.label2id = dict(enumerate("abc")), {"a": 0, "b": 1, "c": 2}
    transformers.AutoModelForSequenceClassification.from_config(three).save_pretrained(
        tmp_path / "three"
    )
    for file in fine_tuned.glob("*token*"):
        (tmp_path / "three" / file.name).write_bytes(file.read_bytes())
    code, _, err = run(*user_rows, *options, "--name", "n")
    assert code == 2
    assert len(err.strip().splitlines()) == 1, err
    assert line in err
    assert not (tmp_path / "runs").exists()
