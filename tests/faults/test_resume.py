"""Studies are killed again and again, at moments drawn at random, and resumed: they
end with the same trials and the same numbers as one that was left alone."""

import os
import random
import shutil
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.record import PREDICTIONS_FILE
from bermo_ray.tracking.journal import RECORDS_FILE
from bermo_ray.tracking.reader import read_curves
from bermo_ray.tracking.store import store_uri
from tests.support.forked import start_forked
from tests.support.studies import DEADLINE_SECONDS, ROOT, count_told, finish_study, start_study
from tests.test_study import MEASURED_BY_CLOCK

KILLS = 10
_SIZES = ("--train-rows", "320", "--dev-rows", "41", "--epochs", "4", "--concurrent", "1")
_LEARNING = ("--train-rows", "640", "--dev-rows", "100", "--epochs", "2", "--concurrent", "1")
_SEARCH = ("--task", "tense", "--dense-trials", "1", "--trials", "3")
_RATES = ("--score-learning-rates", "0.1", "0.5")
# Kind: its script, its options, and those that keep it short. The last two need an encoder that
# learns, which is the shipped one; the others train a smaller one.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "frontier": ("l0_frontier", (*_SIZES, *_SEARCH, *_RATES, "--seeds", "0", "--fusions", "bermo")),
    "grid": ("stability", (*_SIZES, "--task", "tense", "--seeds", "0", "1")),
    "target": (
        "l0_frontier",
        (*_LEARNING, *_SEARCH, "--seeds", "0", "--fusions", "last", "--target", "0.9x"),
    ),
    "layers": ("optimal_layers", (*_LEARNING, "--tasks", "tense", "--seeds", "0")),
}


def read_study(runs: Path) -> tuple[list[dict[str, Any]], list[dict[int, float]], list[Any]]:
    """The trials without what a clock decides or a resume leaves, their curves, their answers."""
    uri = store_uri(runs)
    table = results.load("s", uri)
    curves = read_curves(uri, table["run_id"].to_pylist(), ["metric"])
    rows = table.drop_columns([*MEASURED_BY_CLOCK, "resumed_at", "commit"]).to_pylist()
    answers = [
        pq.read_table(Path(folder) / PREDICTIONS_FILE).to_pylist()
        for folder in table["checkpoint"].to_pylist()
    ]
    return rows, [curve["metric"] for curve in curves.values()], answers


def options_of(kind: str, backbone: str, *more: str) -> tuple[Path, tuple[str, ...]]:
    script, options = KINDS[kind]
    given = () if "640" in options else ("--backbone", backbone)
    return (ROOT / "studies" / f"{script}.py", ("--name", "s", *options, *given, *more))


def wait_for_record(process: BaseProcess, runs: Path) -> None:
    """Waits until a study has added to its records, or has ended."""
    records = runs / "s" / RECORDS_FILE
    size = records.stat().st_size if records.is_file() else 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.is_alive() and (not records.is_file() or records.stat().st_size == size):
        assert time.monotonic() < deadline, "it records nothing"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_ten_times_it_ends_as_if_it_had_not_been(
    kind: str, deeper: str, tmp_path: Path
) -> None:
    """In one process: the log, the checkpoints and the journal are those of a study on Ray."""
    script, options = options_of(kind, deeper, "--backend", "process")
    output, runs, alone = tmp_path / "output", tmp_path / "runs", tmp_path / "alone"
    undisturbed = start_forked(script, ["--runs", str(alone), *options], output)
    wait_for_record(undisturbed, alone)
    started = time.monotonic()
    undisturbed.join()
    assert undisturbed.exitcode == 0, output.read_text()
    seconds, draw, kills = time.monotonic() - started, random.Random(kind), 0

    process = start_forked(script, ["--runs", str(runs), *options], output)
    while kills < KILLS:
        wait_for_record(process, runs)
        process.join(draw.uniform(0, seconds / 6))  # so that ten of them come before its end
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL, output.read_text()
        kills += 1
        process = start_forked(script, ["--runs", str(runs), "--resume", "--name", "s"], output)
    process.join()
    assert process.exitcode == 0, output.read_text()
    assert kills >= 8, "it was over before it could be killed often"
    assert read_study(runs) == read_study(alone)


@pytest.mark.ray
@pytest.mark.parametrize("workers", [1, 2])
def test_on_ray_killed_moved_and_resumed_from_elsewhere(
    workers: int, deeper: str, tmp_path: Path
) -> None:
    script, options = options_of("grid", deeper, "--workers", str(workers))
    if workers == 2:  # each trial starts processes of its own, which takes half a minute
        options = tuple(" ".join(options).replace("--seeds 0 1", "--seeds 0").split())
    finish_study(start_study(tmp_path / "alone", *options, script=script))
    process = start_study(tmp_path / "runs", *options, script=script, session=True)
    while count_told(tmp_path / "runs", "s") < 1 and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(tmp_path / "runs", elsewhere / "moved")
    again = start_study(
        Path("moved"), "--resume", "--name", "s", script=script, cwd=elsewhere, session=True
    )
    finish_study(again)
    assert read_study(elsewhere / "moved") == read_study(tmp_path / "alone")
    table = results.load("s", store_uri(elsewhere / "moved"))
    assert all(Path(p).is_relative_to(elsewhere) for p in table["checkpoint"].to_pylist())
    assert all(Path(path).is_dir() for path in table["checkpoint"].to_pylist())
    run_id = table["run_id"][0].as_py()
    kept = results.predictions(run_id, store_uri(elsewhere / "moved"))
    assert kept.num_rows == 41
