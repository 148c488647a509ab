"""``bermo-ray disk`` and ``bermo-ray clean``: the figures are those of the files."""

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.command_line import commands
from bermo_ray.errors import UserError
from bermo_ray.record import Report
from bermo_ray.results import disk
from bermo_ray.results.disk import measure_disk
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study
from bermo_ray.tracking import artifacts
from bermo_ray.tracking.store import Store, store_uri
from bermo_ray.trial import L0, Trial
from tests.support.checkpoints import SIZE, completed, make_store, write_checkpoint, write_study
from tests.support.trial_store import small_trial

PRUNED = Trial(pruning=L0())
TRIALS = [
    (PRUNED, completed(0.4, 0.9)),
    (PRUNED.replace(seed=1), completed(0.5, 0.8)),
    (PRUNED.replace(seed=2), Report(step=1, metric=0.6, remaining=0.9)),
]


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bermo-ray", *words])
    commands.main()


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of 7 bytes that may grow to 2 GB."""
    folder = tmp_path / "cache"
    (folder / "features").mkdir(parents=True)
    (folder / "features" / "one.npy").write_bytes(b"x" * 7)
    monkeypatch.setenv("BERMO_CACHE", str(folder))
    monkeypatch.setenv("BERMO_CACHE_GB", "2")
    return folder


@pytest.fixture
def runs(tmp_path: Path, own_cache: Path) -> Path:
    """Two studies, one of them with tables, and a folder that belongs to none."""
    runs = tmp_path / "runs"
    write_study(runs, "mine", TRIALS)
    write_study(runs, "other", [(Trial(), completed(1.0, 0.9))])
    write_checkpoint(runs / "checkpoints" / "stranger", 300)
    (runs / "mine").mkdir()
    (runs / "mine" / "trials.parquet").write_bytes(b"x" * 123)
    return runs


def by_name(rows: Any) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def test_figures_are_those_of_the_files(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "disk", "--runs", str(runs), "--json")
    rows = by_name(json.loads(capsys.readouterr().out))
    assert list(rows) == ["mine", "other", "stranger", "mlflow.db", "cache/features"]
    mine, other = rows["mine"], rows["other"]
    assert (mine["trials"], mine["models"]) == (3, 3)
    assert (mine["checkpoints"], mine["tables"]) == (3 * SIZE, 123)
    assert (other["checkpoints"], other["tables"], other["models"]) == (SIZE, 0, 1)
    assert mine["artifacts"] + other["artifacts"] == folder_bytes(runs / "artifacts")
    assert mine["artifacts"] > other["artifacts"] > 0
    assert mine["total"] == 3000 + 123 + mine["artifacts"]
    assert (rows["stranger"]["kind"], rows["stranger"]["total"]) == ("no study", 300)
    assert rows["mlflow.db"]["total"] == (runs / "mlflow.db").stat().st_size
    cache = rows["cache/features"]
    assert (cache["kind"], cache["total"], cache["limit"]) == ("cache", 7, 2_000_000_000)


def test_checkpoints_that_are_gone_are_not_counted(runs: Path) -> None:
    shutil.rmtree(runs / "checkpoints" / "mine" / "00001")
    mine = by_name(measure_disk(Store(runs)).to_pylist())["mine"]
    assert (mine["trials"], mine["models"], mine["checkpoints"]) == (3, 2, 2 * SIZE)


def test_checkpoints_of_a_storage_by_uri_are_found(tmp_path: Path, own_cache: Path) -> None:
    runs, storage = tmp_path / "runs", tmp_path / "bucket"
    write_study(runs, "far", TRIALS, checkpoints=storage)
    for given in (None, storage.as_uri(), str(storage)):
        far = by_name(measure_disk(Store(runs, storage=given)).to_pylist())["far"]
        assert (far["models"], far["checkpoints"]) == (3, 3 * SIZE)


def test_a_servers_artifacts_are_counted_too(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through MLflow's client, as where artifacts can't be seen from here."""
    uri = store_uri(runs)
    here = artifacts.measure_artifacts(uri)
    monkeypatch.setattr(artifacts, "SQLITE", "no file:")
    assert artifacts.measure_artifacts(uri) == here


def test_a_terminal_gets_sums_a_pipe_every_byte(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "disk", "--runs", str(runs))
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out), delimiter="\t"))
    assert (rows[0]["name"], rows[0]["checkpoints"], rows[0]["limit"]) == ("mine", "3000", "")
    file = tmp_path / "d.parquet"
    call(monkeypatch, "disk", "--runs", str(runs), "--parquet", str(file))
    assert pq.read_table(file).schema.equals(disk.DISK)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    call(monkeypatch, "disk", "--runs", str(runs))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split()[:5] == ["mine", "3", "3.0", "kB", lines[1].split()[4]]
    assert lines[3].split()[:5] == ["all", "studies", "4", "4.0", "kB"]
    assert lines[4].split()[:3] == ["stranger", "(no", "study)"]
    assert lines[6].startswith("cache/features (of 2.0 GB) ")
    assert lines[6].endswith(" 7 bytes")


def test_clean_says_what_it_did(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [runs / "checkpoints" / "mine" / f"{number:05d}" for number in range(3)]
    call(monkeypatch, "clean", "mine", "--runs", str(runs), "--dry-run")
    told = capsys.readouterr().out.splitlines()
    assert [folder.exists() for folder in folders] == [True, True, True]
    call(monkeypatch, "clean", "mine", "--runs", str(runs))
    done = capsys.readouterr().out.splitlines()
    assert [folder.exists() for folder in folders] == [True, False, True]
    assert told[1].split() == [TRIALS[1][0].id[:6], "50.0%", "0.8000", "1.0", "kB", "completed"]
    assert told[2:] == [
        "mine: would remove 1 of 3 checkpoints, 1.0 kB",
        "  kept 1: on the frontier",
        "  kept 1: unfinished",
    ]
    assert done == [*told[:2], "mine: removed 1 of 3 checkpoints, 1.0 kB", *told[3:]]
    call(monkeypatch, "clean", "mine", "--runs", str(runs), "--all")
    assert [folder.exists() for folder in folders] == [False, False, True]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["clean", "nothing"], "error: no study 'nothing' in"),
        (["clean", "mine", "--storage", "elsewhere"], "; nothing was removed; give its --storage"),
        (["disk", "--runs", "nowhere"], "error: no studies in"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    words: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "runs", "mine", TRIALS)
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, *words)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert line in err
    assert len(err.strip().splitlines()) == 1


def test_a_study_that_was_run_is_cleaned_and_its_best_model_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    make_store(runs)
    base = small_trial("embedded", data={"train_rows": 320, "dev_rows": 60}, epochs=2)
    trials = [base.replace(optimizer={"learning_rate": rate}) for rate in (1e-3, 9e-4)]
    study = Study("s", Grid(trials), store=Store(runs), backend="process")
    table = study.run().table
    row = by_name(measure_disk(Store(runs)).to_pylist())["s"]
    assert row["checkpoints"] == folder_bytes(runs / "checkpoints" / "s")
    assert row["artifacts"] == folder_bytes(runs / "artifacts")
    assert (row["tables"], row["models"]) == (folder_bytes(runs / "s"), 2)
    (best,) = results.frontier(table).to_pylist()
    (lost,) = (r for r in table.to_pylist() if r["run_id"] != best["run_id"])
    call(monkeypatch, "clean", "s", "--runs", str(runs))
    assert "removed 1 of 2 checkpoints" in capsys.readouterr().out
    assert (Path(best["checkpoint"]).is_dir(), Path(lost["checkpoint"]).is_dir()) == (True, False)
    assert results.predictions(lost["trial_id"], study.uri).num_rows == 60
    with pytest.raises(SystemExit):
        call(monkeypatch, "export", lost["trial_id"], str(tmp_path / "m"), "--runs", str(runs))
    err = capsys.readouterr().err
    removed = f"error: the checkpoint of trial {lost['trial_id'][:6]} was removed by `bermo-ray clean` on"  # fmt: skip # noqa: E501
    assert err.startswith(removed)
    assert err.count("\n") == 1
    version, about = study.register_best("m")
    assert (version, best["trial_id"][:6] in about) == ("1", True)
    grown = by_name(measure_disk(Store(runs)).to_pylist())["s"]
    assert grown["artifacts"] == folder_bytes(runs / "artifacts")  # with the registered model
    assert grown["artifacts"] > row["artifacts"] + 100_000
    # A teacher that is named by its id is one line too.
    from bermo_ray.command_line.options import OneTaskOptions

    with pytest.raises(UserError, match="was removed by `bermo-ray clean`"):
        OneTaskOptions(runs=runs, teacher=lost["trial_id"]).base_trial("dense")
