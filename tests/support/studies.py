"""What tests of study scripts share: starting one, waiting for it, looking at its records."""

import importlib.util
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results
from bermo_ray.json_lines import JsonLines
from bermo_ray.record import Status
from bermo_ray.search.dialogue import LOG_FILE
from bermo_ray.tracking.store import store_uri
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Trial

ROOT = Path(__file__).parents[2]
L0_FRONTIER = ROOT / "studies" / "l0_frontier.py"
# RAY_ADDRESS=local: a cluster that happens to run on this machine is none of the tests' business.
ENVIRONMENT = os.environ | {"RAY_ADDRESS": "local", "COLUMNS": "80", "HF_HUB_OFFLINE": "1"}
DEADLINE_SECONDS = 180


def start_study(
    runs: Path,
    *options: str,
    session: bool = False,
    script: Path = L0_FRONTIER,
    variables: Mapping[str, str] | None = None,
    **more: Any,
) -> subprocess.Popen[str]:
    """Starts a study script; with ``session`` in a process group of its own, to be killed."""
    return subprocess.Popen(
        [sys.executable, str(script), "--runs", str(runs), *options],
        env=ENVIRONMENT | (variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=session,
        **more,
    )


def finish_study(process: subprocess.Popen[str], code: int = 0) -> str:
    """Waits for the script to end with that code; gives what it printed."""
    out, err = process.communicate(timeout=500)
    assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
    return out


def small_study(backbone: str, rows: int = 64, epochs: int = 1) -> tuple[str, ...]:
    """Options of a frontier study ``s`` of six short trials."""
    return (
        "--name", "s", "--task", "tense", "--backbone", backbone, "--train-rows", str(rows),
        "--dev-rows", "41", "--epochs", str(epochs), "--trials", "2",
        "--dense-trials", "1", "--seeds", "0", "--score-learning-rates", "0.1", "0.5",
    )  # fmt: skip


def statuses(runs: Path, study: str = "s") -> list[Status]:
    """Of the trials that have started."""
    if not (runs / study / "study.json").is_file():
        return []
    return [Status(s) for s in results.load(study, store_uri(runs))["status"].to_pylist()]


def is_midway(runs: Path) -> bool:
    """Whether a trial has ended and another has got to its first checkpoint, its end far off."""
    if not statuses(runs):
        return False
    rows = results.load("s", store_uri(runs)).to_pylist()
    ended = [row for row in rows if Status(row["status"]).measured]
    return bool(ended) and any(r["status"] == "running" and r["checkpoint"] for r in rows)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits until the condition holds while the process runs."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None, f"ended early\n{process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.2)


def same_as_alone(row: Mapping[str, Any]) -> None:
    """A row of the table is what its Trial gives without Ray, to the bit."""
    alone = run_locally(Trial.from_json(row["trial_json"]))[-1]
    for name in ("metric", "loss", "train_loss", "remaining", "nonzero_parameters"):
        assert getattr(alone, name) == row[name], name


def count_told(runs: Path, study: str) -> int:
    """Ends that the study's log has."""
    return sum("told" in entry for entry in JsonLines(runs / study / LOG_FILE).read())


def load_script(name: str) -> Any:
    """The module of a study script."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "studies" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, *options: str
) -> tuple[int, str, str]:
    """Runs a script of studies/ in this process, 80 columns wide; its exit code and what it printed
    to both streams."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("BERMO_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [f"studies/{name}.py", *options])
    code = 0
    try:
        runpy.run_path(str(ROOT / "studies" / f"{name}.py"), run_name="__main__")
    except SystemExit as end:
        code = int(end.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err
