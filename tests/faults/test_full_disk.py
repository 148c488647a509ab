"""A disk runs full while a study writes to it, for real: one line, nothing half-written, and once
there is room the study goes on to the same numbers."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bermo_ray import cache, results
from bermo_ray.errors import StudyHaltedError
from bermo_ray.search.grid import Grid
from bermo_ray.space import OutOfSpaceError
from bermo_ray.study import Study
from bermo_ray.tracking.reader import read_curves
from bermo_ray.tracking.store import Store
from bermo_ray.training.array_cache import read_or_fill
from bermo_ray.training.checkpoint_folder import CheckpointFolder
from tests.support.runs import small_trial
from tests.support.small_disks import fill_up, mount_disk
from tests.support.studies import finish_study, is_midway, small_study, start_study, wait_for
from tests.test_study import KnownTrials, without_clocks


def run_until_full(
    study: Study, disk: Path, leave: int, at_report: int = 2, resume: bool = False
) -> str:
    """Runs a study in which the disk is full from a report on; gives what is said of it."""

    class Filler(KnownTrials):
        heard = 0

        def on_report(self, attempt: str, reports: Any, checkpoint: str) -> None:
            self.heard += 1
            if self.heard >= at_report:  # again: what others write meanwhile may free a page
                fill_up(disk, leave)

    study.listeners = [Filler([])]
    with pytest.raises(StudyHaltedError) as caught:
        study.run(resume)
    (disk / "ballast").unlink()
    (line,) = caught.value.problems
    return line


def make_study(tiny: str, store: Store) -> Study:
    trials = [small_trial(tiny, seed=seed) for seed in (0, 1)]
    return Study("s", Grid(trials), store=store, backend="process")


@pytest.fixture(scope="module")
def expected(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The same study with room enough."""
    store = Store(tmp_path_factory.mktemp("roomy"))
    return make_study(tiny, store).run().table


def find_differences(table: pa.Table, expected: pa.Table) -> set[str]:
    """The columns in which two tables differ, but for those that a clock decides."""
    table, expected = without_clocks(table), without_clocks(expected)
    return {name for name in table.column_names if not table[name].equals(expected[name])}


def count_points(study: Study) -> list[list[int]]:
    """The steps of each trial's metric in MLflow."""
    ids = results.load("s", study.uri)["run_id"].to_pylist()
    return [list(curves["metric"]) for curves in read_curves(study.uri, ids, ["metric"]).values()]


def test_for_checkpoints(tiny: str, tmp_path: Path, expected: pa.Table) -> None:
    with mount_disk(tmp_path / "disk", 8) as disk:
        store = Store(tmp_path / "runs", storage=str(disk))
        line = run_until_full(make_study(tiny, store), disk, leave=50_000)
        where = disk / "s"
        assert line.startswith(f"storage: no room left in {where}")
        assert line.endswith("make some, then resume the study")
        assert not list(where.glob("*.new")), "a checkpoint was left half-written"
        (folder,) = where.iterdir()
        assert CheckpointFolder(folder).find() == folder
        study = make_study(tiny, store)
        assert find_differences(study.run(resume=True).table, expected) == {"resumed_at"}
        assert count_points(study) == [[3, 6, 9, 12]] * 2


def test_for_records(tiny: str, tmp_path: Path, expected: pa.Table) -> None:
    with mount_disk(tmp_path / "disk", 16) as disk:
        store = Store(disk, storage=str(tmp_path / "checkpoints"))
        line = run_until_full(make_study(tiny, store), disk, leave=0, at_report=3)
        assert line.startswith(f"runs: no room left in {disk / 's'}")
        study = make_study(tiny, store)
        assert find_differences(study.run(resume=True).table, expected) <= {"resumed_at"}
        assert count_points(study) == [[3, 6, 9, 12]] * 2


def test_for_the_cache(tmp_path: Path) -> None:
    with mount_disk(tmp_path / "disk", 2) as disk, pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.CACHE_VARIABLE, str(disk))
        with pytest.raises(OutOfSpaceError, match="^BERMO_CACHE: no room left in .*make some, or"):
            read_or_fill("large", (1024, 1024), lambda array: array.fill(1.0))
        assert not list(disk.rglob("*.partial"))
        small = read_or_fill("small", (8, 8), lambda array: array.fill(1.0))
        assert small.sum() == 64


@pytest.mark.ray
def test_of_a_study_on_ray(tiny: str, tmp_path: Path) -> None:
    with mount_disk(tmp_path / "disk", 1) as disk:
        options = (*small_study(tiny, rows=300, epochs=2), "--storage", str(disk))
        process = start_study(tmp_path / "runs", *options)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 2, out + err
        (line,) = err.strip().splitlines()
        assert line.startswith(f"error: --storage: no room left in {disk}/s/tense-")
        assert "--resume --name s" in out
        rows = results.load("s", f"sqlite:///{tmp_path}/runs/mlflow.db").to_pylist()
        assert "failed" not in [row["status"] for row in rows]
        shutil.copytree(disk, tmp_path / "copy")
    shutil.rmtree(disk)
    (tmp_path / "copy").rename(disk)  # the same folder, with room
    finish_study(start_study(tmp_path / "runs", "--resume", "--name", "s"))
    rows = results.load("s", f"sqlite:///{tmp_path}/runs/mlflow.db").to_pylist()
    assert len(rows) == 6
    assert all(row["status"] in ("completed", "diverged") for row in rows)


@pytest.mark.ray
def test_for_the_records_of_a_study_on_ray(tiny: str, tmp_path: Path) -> None:
    with mount_disk(tmp_path / "disk", 64) as disk:
        options = (*small_study(tiny, rows=500, epochs=6), "--fusions", "last", "--trials", "3")
        places = ("--storage", str(tmp_path / "checkpoints"), "--concurrent", "1")
        process = start_study(disk, *options, *places)
        wait_for(lambda: is_midway(disk), process)
        ballast = fill_up(disk)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 2, out + err
        (line,) = err.strip().splitlines()
        room = "make some, then resume the study"
        assert line == f"error: --runs: no room left in {disk / 's'}; {room}"
        assert "--resume --name s" in out
        ballast.unlink()
        finish_study(start_study(disk, "--resume", "--name", "s"))
        rows = results.load("s", f"sqlite:///{disk}/mlflow.db").to_pylist()
    assert len(rows) == 4
    assert all(row["status"] in ("completed", "diverged") for row in rows)
