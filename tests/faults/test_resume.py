"""Studies are killed again and again, at moments drawn at random, and resumed: they
end with the same trials and the same numbers as one that was left alone."""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results
from bermo_ray.tracking.reader import read_curves
from bermo_ray.tracking.store import store_uri
from tests.support.studies import ROOT, count_told, finish_study, start_study
from tests.test_study import MEASURED_BY_CLOCK

pytestmark = pytest.mark.slow

KILLS = 10
_SIZES = ("--train-rows", "320", "--dev-rows", "41", "--epochs", "4", "--concurrent", "1")
_SEARCH = ("--task", "tense", "--score-learning-rates", "0.1", "0.5", "--dense-trials", "1")
# Kind: its script, its options, and those that keep it short.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "frontier": ("l0_frontier", (*_SEARCH, "--trials", "3", "--seeds", "0", "--fusions", "bermo")),
    "layers": ("optimal_layers", ("--tasks", "tense", "--seeds", "0")),
    "grid": ("stability", ("--task", "tense", "--seeds", "0", "1")),
}


def read_study(runs: Path) -> tuple[list[dict[str, Any]], list[dict[int, float]]]:
    """The trials without what a clock decides or a resume leaves, and their curves."""
    uri = store_uri(runs)
    table = results.load("s", uri)
    curves = read_curves(uri, table["run_id"].to_pylist(), ["metric"])
    rows = table.drop_columns([*MEASURED_BY_CLOCK, "resumed_at"]).to_pylist()
    return rows, [curve["metric"] for curve in curves.values()]


def options_of(kind: str, backbone: str, *more: str) -> tuple[Path, tuple[str, ...]]:
    script, options = KINDS[kind]
    option = "--backbones" if "--tasks" in options else "--backbone"
    return (
        ROOT / "studies" / f"{script}.py",
        ("--name", "s", *_SIZES, *options, option, backbone, *more),
    )


def kill_at_random(
    process: "subprocess.Popen[str]", runs: Path, draw: random.Random, seconds: float
) -> None:
    """Kills a study some time after it has got to its trials; it may have ended before."""
    while not (runs / "s" / "log.jsonl").is_file() and process.poll() is None:
        time.sleep(0.05)
    deadline = time.monotonic() + draw.uniform(0, seconds)
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("kind", KINDS)
def test_killed_ten_times_it_ends_as_if_it_had_not_been(
    kind: str, deeper: str, tmp_path: Path
) -> None:
    """In one process: the log, the checkpoints and the journal are those of a study on Ray."""
    script, options = options_of(kind, deeper, "--backend", "process")
    finish_study(start_study(tmp_path / "alone", *options, script=script))
    draw, runs = random.Random(kind), tmp_path / "runs"
    process = start_study(runs, *options, script=script, session=True)
    kills = 0
    while kills < KILLS:
        kill_at_random(process, runs, draw, seconds=4.0 if kills else 1.0)
        if process.returncode == 0:
            break
        kills += 1
        process = start_study(runs, "--resume", "--name", "s", script=script, session=True)
    finish_study(process) if process.returncode is None else None
    assert kills >= 5, "it was over before it could be killed often"
    assert read_study(runs) == read_study(tmp_path / "alone")


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
