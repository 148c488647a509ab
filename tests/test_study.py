"""The main job for real: the study script, its kills and resumes, and what it leaves behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bermo_ray import results, tracking
from bermo_ray.training.trainer import run_locally
from bermo_ray.trial import Trial

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "studies" / "l0_frontier.py"
# RAY_ADDRESS=local: a cluster that happens to run on this machine is none of the tests' business.
ENVIRONMENT = os.environ | {"RAY_ADDRESS": "local", "COLUMNS": "80", "HF_HUB_OFFLINE": "1"}


def start(
    runs: Path, *options: str, session: bool = False, script: Path = SCRIPT
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script), "--runs", str(runs), *options],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=session,
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=500)
    assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
    return out


def small(tiny: str, rows: int = 64, epochs: int = 1) -> tuple[str, ...]:
    return (
        "--name", "s", "--task", "tense", "--backbone", tiny, "--train-rows", str(rows),
        "--dev-rows", "41", "--epochs", str(epochs), "--trials", "2", "--mask-rates", "0.1", "0.5",
    )  # fmt: skip


def uri(runs: Path) -> str:
    return tracking.store_uri(runs)


def statuses(runs: Path) -> list[str]:
    if not (runs / "s" / "study.json").is_file():
        return []
    return results.load("s", uri(runs))["status"].to_pylist()


def midway(runs: Path) -> bool:
    """Whether a trial has ended and another has got to its first checkpoint, its end far off."""
    if not statuses(runs):
        return False
    rows = results.load("s", uri(runs)).to_pylist()
    ended = [r for r in rows if r["status"] in ("completed", "diverged")]
    return bool(ended) and any(r["status"] == "running" and r["checkpoint"] for r in rows)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert process.poll() is None, f"ended early\n{process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.2)


def same_as_alone(row: dict[str, Any]) -> None:
    """A row of the table is what its Trial gives without Ray, to the bit."""
    alone = run_locally(Trial.from_json(row["trial"]))[-1]
    for key in ("metric", "loss", "train_loss", "remaining", "nonzero"):
        assert alone[key] == row[key], key


def test_the_whole_study(tiny: str, tmp_path: Path) -> None:
    out = finish(start(tmp_path, *small(tiny)))
    assert "Parameter-efficiency frontier" in out
    assert "bermo-ray ui" in out
    assert "bermo_ray.results.load('s'" in out
    path = str(tmp_path)
    assert all(len(line) <= 80 for line in out.splitlines() if path not in line), out

    table = results.load("s", uri(tmp_path))
    assert table.schema == results.SCHEMA
    assert table.num_rows == 6
    assert table["fusion"].to_pylist().count("bermo") == 3
    assert table["method"].to_pylist().count("dense") == 2
    rows = table.to_pylist()
    for row in rows:
        assert row["status"] in ("completed", "diverged")
        assert row["trial_id"] == Trial.from_json(row["trial"]).id
        assert row["seconds"] > 0
        assert Path(row["checkpoint"], "model.safetensors").is_file()
        kept = results.predictions(row["run_id"], uri(tmp_path))
        assert kept["row"].to_pylist() == list(range(41))
        right = [p == t for p, t in zip(kept["predicted"], kept["target"], strict=True)]
        assert sum(right) / 41 == pytest.approx(row["metric"])
    same_as_alone(next(r for r in rows if r["method"] == "l0"))
    assert pq.read_table(tmp_path / "s" / "trials.parquet").equals(table)
    assert pq.read_table(tmp_path / "s" / "frontier.parquet").equals(
        results.frontier(results.over_seeds(table))
    )
    assert (tmp_path / "s" / "frontier.png").read_bytes().startswith(b"\x89PNG")

    # MLflow: one parent with the study's files, a child a trial with all that it takes to redo it.
    store = tracking.client(uri(tmp_path))
    parent = tracking.find_study(uri(tmp_path), "s")
    assert parent is not None
    assert parent.data.tags["bermo.status"] == "completed"
    assert parent.data.tags["version.torch"]
    names = {a.path for a in store.list_artifacts(parent.info.run_id)}
    assert names == {"frontier.parquet", "frontier.png", "space.json", "trials.parquet"}
    child = store.get_run(rows[-1]["run_id"])
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.params["seed"] == "0"
    assert "thread(s) of" in child.data.tags["bermo.hardware"]
    saved = Path(store.download_artifacts(child.info.run_id, "trial.json", str(tmp_path)))
    assert Trial.from_json(saved.read_text()).id == rows[-1]["trial_id"]

    again = start(tmp_path, *small(tiny))
    _, err = again.communicate(timeout=200)
    assert again.returncode == 2
    assert err.strip() == "error: --name: a study 's' exists; --resume it or rename"


def test_killed_it_goes_on(tiny: str, tmp_path: Path) -> None:
    options = (*small(tiny, rows=1000, epochs=8), "--concurrent", "1")
    process = start(tmp_path, *options, session=True)

    def saved_midway() -> bool:
        # Tune saves its own state every two seconds: a checkpoint is known to it one save later.
        if not midway(tmp_path):
            return False
        ended = sum(s in ("completed", "diverged") for s in statuses(tmp_path))
        return _saved_checkpoints(tmp_path) > ended

    wait_for(saved_midway, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {r["run_id"]: r for r in results.load("s", uri(tmp_path)).to_pylist()}
    kept = {i: r for i, r in before.items() if r["status"] in ("completed", "diverged")}
    cut = next(r for r in before.values() if r["status"] == "running")

    finish(start(tmp_path, "--resume", "--name", "s"))
    after = {r["run_id"]: r for r in results.load("s", uri(tmp_path)).to_pylist()}
    assert len(after) == 6
    assert {i: after[i] for i in kept} == kept
    store = tracking.client(uri(tmp_path))
    for run_id, row in after.items():
        steps = [m.step for m in store.get_metric_history(run_id, "metric")]
        assert steps == sorted(set(steps)), "a report is missing or written twice"
        assert len(steps) == 8
        assert row["status"] in ("completed", "diverged")
    same_as_alone(after[cut["run_id"]])
    tags = store.get_run(cut["run_id"]).data.tags
    assert int(tags["bermo.resumed_at"]) > 0, "it began anew instead of going on"


def test_killed_before_anything_was_saved_it_starts_anew(tiny: str, tmp_path: Path) -> None:
    process = start(tmp_path, *small(tiny), session=True)
    wait_for((tmp_path / "s" / "study.json").is_file, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    finish(start(tmp_path, "--resume", "--name", "s"))
    assert len(statuses(tmp_path)) == 6
    assert set(statuses(tmp_path)) <= {"completed", "diverged"}


def _saved_checkpoints(runs: Path) -> int:
    """Trials whose checkpoint is in Tune's saved state."""
    files = sorted((runs / "checkpoints" / "s").glob("experiment_state-*.json"))
    if not files:
        return 0
    try:
        state = json.loads(files[-1].read_text())
    except json.JSONDecodeError:
        return 0
    return sum('"checkpoint_' in meta for _, meta in state["trial_data"])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_says_how_to_go_on(tiny: str, tmp_path: Path, how: signal.Signals) -> None:
    process = start(tmp_path, *small(tiny, rows=1000, epochs=8), "--concurrent", "1")
    wait_for(lambda: midway(tmp_path), process)
    process.send_signal(how)
    out = finish(process, code=130)
    assert "--resume --name s" in out
    assert "interrupted" in statuses(tmp_path)
    parent = tracking.find_study(uri(tmp_path), "s")
    assert parent is not None
    assert parent.data.tags["bermo.status"] == "interrupted"
    finish(start(tmp_path, "--resume"))
    assert len(statuses(tmp_path)) == 6
    assert set(statuses(tmp_path)) <= {"completed", "diverged"}


def test_two_workers_train_through_ray_train(tiny: str, tmp_path: Path) -> None:
    finish(start(tmp_path, *small(tiny), "--workers", "2", "--fusions", "bermo", "--trials", "1"))
    rows = results.load("s", uri(tmp_path)).to_pylist()
    assert [r["method"] for r in rows] == ["dense", "l0"]
    for row in rows:
        assert row["workers"] == 2
        assert row["status"] in ("completed", "diverged")
        assert row["metric"] * 41 == pytest.approx(round(row["metric"] * 41))
        assert Path(row["checkpoint"], "model.safetensors").is_file()
        assert results.predictions(row["run_id"], uri(tmp_path)).num_rows == 41


def test_a_trial_that_fails_is_a_row(tiny: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    runs = tmp_path / "runs"
    process = start(runs, *small(str(broken)))
    wait_for((runs / "s" / "study.json").is_file, process)  # all checks are passed
    (broken / "model.safetensors").write_bytes(b"not weights")
    out = finish(process)
    rows = results.load("s", uri(runs)).to_pylist()
    assert len(rows) == 6
    failed = [r for r in rows if r["status"] == "failed"]
    assert len(failed) >= 4  # the first two may have been quicker than the sabotage
    assert all("its weights can't be loaded" in r["reason"] for r in failed)
    assert "failed" in out


def test_a_target_over_seeds_and_what_a_second_study_learns_from_the_first(tmp_path: Path) -> None:
    options = (
        "--train-rows", "600", "--dev-rows", "100", "--epochs", "1", "--fusions", "last",
        "--trials", "3", "--lambdas", "0.5", "20",
    )  # fmt: skip
    first = ("--name", "first", "--target", "0.9x", "--seeds", "0", "1")
    process = start(tmp_path, *options, *first, session=True)

    def some() -> list[str]:
        done = (tmp_path / "first" / "study.json").is_file()
        return results.load("first", uri(tmp_path))["status"].to_pylist() if done else []

    # Both baselines and a pruned trial have ended, and Tune has saved that.
    wait_for(lambda: some().count("completed") >= 3 and _saved(tmp_path, "first") >= 3, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    # A log that this version would not have written is one line, not a study gone astray.
    (state,) = (tmp_path / "checkpoints" / "first").glob("searcher-state-*")
    kept = state.read_text()
    log = json.loads(kept)
    log["log"][0]["trial"] = "another"
    state.write_text(json.dumps(log))
    strange = start(tmp_path, "--resume", "--name", "first")
    _, err = strange.communicate(timeout=200)
    assert strange.returncode == 2
    assert err.strip().splitlines() == [
        "error: --resume: this version would have asked for other trials than the study did so "
        "far; resume it with the version that started it"
    ]
    state.write_text(kept)
    out = finish(start(tmp_path, "--resume", "--name", "first"))
    table = results.load("first", uri(tmp_path))
    rows = table.to_pylist()
    dense = [r["metric"] for r in rows if r["method"] == "dense"]
    assert len(dense) == 2
    pruned = [r for r in rows if r["method"] == "l0" and r["seed"] == 0]
    assert len(pruned) == 3
    (answer,) = pq.read_table(tmp_path / "first" / "answers.parquet").to_pylist()
    assert answer["target"] == pytest.approx(0.9 * sum(dense) / 2)
    whole = results.over_seeds(table).to_pylist()
    met = [
        r for r in whole
        if r["method"] == "l0" and r["seeds"] == 2 and r["metric"] >= answer["target"]
    ]  # fmt: skip
    assert answer["met"] == bool(met)
    if met:
        assert answer["remaining"] == pytest.approx(min(r["remaining"] for r in met))
        assert f"met with {answer['remaining']:.1%} of the weights" in out

    finish(start(tmp_path, *options, "--name", "second", "--target", "0.9x"))
    again = results.load("second", uri(tmp_path))
    assert again["method"].to_pylist() == ["l0"] * 3  # the baseline is known
    assert not set(again["trial_id"].to_pylist()) & {r["trial_id"] for r in pruned}
    too_much = start(tmp_path, *options, "--name", "third", "--target", "0.9999")
    _, err = too_much.communicate(timeout=200)
    assert too_much.returncode == 2
    assert "is above last's dense baseline" in err
    assert len(err.strip().splitlines()) == 1


def _saved(runs: Path, name: str) -> int:
    """Ends that are in the searcher's saved state."""
    files = sorted((runs / "checkpoints" / name).glob("searcher-state-*"))
    try:
        log = json.loads(files[-1].read_text())["log"] if files else []
    except json.JSONDecodeError:
        return 0
    return sum("told" in entry for entry in log)
