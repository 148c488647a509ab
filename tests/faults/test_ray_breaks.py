"""Ray itself breaks while a study runs, for real: one line, how to go on, and no process left."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from bermo_ray import results
from bermo_ray.record import Status
from bermo_ray.tracking.store import find_study, store_uri
from tests.support.studies import (
    finish_study,
    is_midway,
    same_as_alone,
    small_study,
    start_study,
    statuses,
    wait_for,
)

pytestmark = pytest.mark.ray


def find_process(parent: int, name: str) -> psutil.Process:
    children = psutil.Process(parent).children(recursive=True)
    return next(child for child in children if name in child.name())


@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_dead_ray_is_one_line_and_the_study_can_be_resumed(
    tiny: str, tmp_path: Path, name: str
) -> None:
    options = (*small_study(tiny, rows=1000, epochs=8), "--concurrent", "1")
    process = start_study(tmp_path, *options)
    wait_for(lambda: is_midway(tmp_path), process)
    children = psutil.Process(process.pid).children(recursive=True)
    find_process(process.pid, name).kill()
    killed_at = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    died = {"raylet": "raylet", "gcs_server": "control process (gcs_server)"}[name]
    assert err.strip().splitlines() == [f"error: ray: its {died} died, so that no trial can go on"]
    assert "--resume --name s" in out
    _, left = psutil.wait_procs(children, timeout=30)
    assert left == []
    assert time.monotonic() - killed_at < 60
    assert Status.INTERRUPTED in statuses(tmp_path)
    run = find_study(store_uri(tmp_path), "s")
    assert run is not None
    assert run.data.tags["bermo.status"] == "interrupted"

    if name == "raylet":  # once is enough: what is resumed does not know why it was cut off
        return
    finish_study(start_study(tmp_path, "--resume", "--name", "s"))
    rows = results.load("s", store_uri(tmp_path)).to_pylist()
    assert len(rows) == 6
    assert all(Status(row["status"]).measured for row in rows)
    resumed = [row for row in rows if row["resumed_at"]]
    assert len(resumed) == 1
    same_as_alone(resumed[0])


def find_marked(mark: str) -> list[psutil.Process]:
    """All processes with that variable, whoever their parent is by now."""
    marked = []
    for process in psutil.process_iter():
        try:
            if mark in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                marked.append(process)
        except psutil.Error:  # it has ended, or is somebody else's
            continue
    return marked


def test_stopped_twice_it_ends_at_once_and_leaves_no_process(tiny: str, tmp_path: Path) -> None:
    mark = f"BERMO_TEST_{os.getpid()}"
    options = (*small_study(tiny, rows=1000, epochs=8), "--concurrent", "1")
    process = start_study(tmp_path, *options, variables={mark: "1"})
    wait_for(lambda: is_midway(tmp_path), process)
    for child in psutil.Process(process.pid).children(recursive=True):
        if "ray::ImplicitFunc" in " ".join(child.cmdline()):
            child.suspend()  # a trial that does not answer, so that Tune waits for it
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert err == ""
    assert "--resume --name s" in out
    psutil.wait_procs(find_marked(mark), timeout=30)
    assert find_marked(mark) == []
    assert Status.INTERRUPTED in statuses(tmp_path)


def test_a_trial_out_of_memory_is_a_row_with_its_reason(tiny: str, tmp_path: Path) -> None:
    """The limit is what this machine uses already: Ray ends the process of each trial."""
    used = psutil.virtual_memory().percent / 100
    limits = {
        "RAY_memory_usage_threshold": f"{max(0.01, used - 0.02):.3f}",
        "RAY_memory_monitor_refresh_ms": "100",
        "RAY_task_oom_retries": "0",
    }
    options = (*small_study(tiny, rows=1000, epochs=8), "--fusions", "last", "--trials", "1")
    process = start_study(tmp_path, *options, variables=limits)
    out, err = process.communicate(timeout=300)
    rows = results.load("s", store_uri(tmp_path)).to_pylist()
    assert [row["status"] for row in rows] == ["failed"] * 2, out + err
    assert all(row["reason"].startswith("out of memory: ") for row in rows), rows
    assert "2 failed: out of memory" in out
    assert process.returncode == 1
    assert err == ""


def test_one_of_two_workers_is_killed_and_the_trial_goes_on(tiny: str, tmp_path: Path) -> None:
    options = (
        *small_study(tiny, rows=600, epochs=8), "--workers", "2", "--fusions", "bermo",
        "--trials", "1", "--concurrent", "1",
    )  # fmt: skip
    process = start_study(tmp_path, *options)

    def has_checkpoint() -> bool:
        rows = results.load("s", store_uri(tmp_path)).to_pylist() if statuses(tmp_path) else []
        return any(row["status"] == "running" and row["checkpoint"] for row in rows)

    wait_for(has_checkpoint, process)
    workers = [
        child for child in psutil.Process(process.pid).children(recursive=True)
        if "RayTrainWorker" in " ".join(child.cmdline())
    ]  # fmt: skip
    assert len(workers) == 2
    os.kill(workers[1].pid, signal.SIGKILL)
    finish_study(process)
    rows = results.load("s", store_uri(tmp_path)).to_pylist()
    assert [row["method"] for row in rows] == ["dense", "l0"]
    assert [row for row in rows if row["resumed_at"]], "it began anew instead of going on"
    for row in rows:
        assert row["workers"] == 2
        assert Status(row["status"]).measured
        assert row["metric"] * 41 == pytest.approx(round(row["metric"] * 41))
        assert Path(row["checkpoint"], "model.safetensors").is_file()
        assert results.predictions(row["run_id"], store_uri(tmp_path)).num_rows == 41
