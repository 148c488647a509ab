"""``bermo-ray``: what its commands show of a store."""

import csv
import io
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.command_line import commands
from bermo_ray.record import Report, Status
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import L0, Trial
from tests.support.records import write_study


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one study of two trials, written as a study writes it."""
    folder = tmp_path_factory.mktemp("runs")
    trials = []
    for number, metric in enumerate((0.9, 0.8)):
        figures = {"metric": metric, "remaining": 0.5 + number / 4, "dropped_layers": [number]}
        figures["metric_selection"] = metric
        reports = [Report(step=step, epoch=float(step), **figures) for step in (1, 2)]
        reports.append(Report(step=3, status=Status.COMPLETED, **figures))
        trials.append((Trial(pruning=L0(), seed=number), reports))
    write_study(store_uri(folder), "mine", trials)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bermo-ray", *words])
    commands.main()


def test_a_pipe_gets_what_varies_in_full(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "table", "mine", "--runs", str(runs))
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out), delimiter="\t"))
    assert [(r["seed"], r["remaining"], r["metric"], r["status"]) for r in rows] == [
        ("0", "0.5", "0.9", "completed"),
        ("1", "0.75", "0.8", "completed"),
    ]
    assert "λ" not in rows[0]  # the same in both
    call(monkeypatch, "query", "SELECT 1 / 3 AS third", "--runs", str(runs))
    assert capsys.readouterr().out == "third\n0.3333333333333333\n"


def test_a_terminal_gets_a_table_that_fits(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    call(monkeypatch, "table", "mine", "--runs", str(runs))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["trial", "seed", "remaining", "metric", "seconds", "status"]
    assert lines[1].split()[1:4] == ["0", "50.0%", "0.9000"]
    assert all(len(line) <= 60 for line in lines)


def test_what_does_not_fit_a_terminal_scrolls(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("pydoc.pager", pages.append)
    call(monkeypatch, "query", "SELECT repeat('x', 70) AS long", "--runs", str(runs))
    assert "x" * 70 in pages[0]


def test_programs_get_json_and_parquet_with_every_column(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "table", "mine", "--runs", str(runs), "--json")
    first, second = json.loads(capsys.readouterr().out)
    assert set(first) == set(results.SCHEMA.names)
    assert (first["dropped_layers"], second["metric"], first["gamma"]) == ([0], 0.8, None)
    file = tmp_path / "f.parquet"
    call(monkeypatch, "table", "mine", "--runs", str(runs), "--frontier", "--parquet", str(file))
    assert pq.read_table(file)["metric"].to_pylist() == [0.9]
    best = "SELECT seed, metric, metric FROM trials ORDER BY metric DESC LIMIT 1"
    call(monkeypatch, "query", best, "--study", "mine", "--runs", str(runs), "--json")
    assert json.loads(capsys.readouterr().out) == [{"seed": 0, "metric": 0.9, "metric_2": 0.9}]


def test_list_tells_how_studies_ended(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "list", "--runs", str(runs), "--json")
    (study,) = json.loads(capsys.readouterr().out)
    counts = {name: study[name] for name in ("trials", "completed", "diverged", "failed", "taken")}
    assert counts == {"trials": 2, "completed": 2, "diverged": 0, "failed": 0, "taken": 0}
    assert (study["study"], study["tasks"]) == ("mine", "tense")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    call(monkeypatch, "list", "--runs", str(runs))
    assert "mine" in capsys.readouterr().out


def test_doctor_says_what_is_there_and_what_is_not(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "doctor", "--runs", str(runs))
    out = capsys.readouterr().out
    assert "store      1 studies in" in out
    assert "HF_HUB_OFFLINE is set" in out  # as in all tests
    assert f"torch {version('torch')}" in out
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, "doctor", "--runs", str(tmp_path), "--data-dir", str(tmp_path))
    assert caught.value.code == 1
    assert f"MISSING  data       {tmp_path}: no task" in capsys.readouterr().out


def test_studies_ship_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "study")
    assert "probing" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # to be put back
    call(monkeypatch, "study", "stability", "--seeds", "3", "--dry-run", "--runs", str(tmp_path))
    assert "2 trials" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        call(monkeypatch, "study", "stabilty")
    assert capsys.readouterr().err == "error: unknown study 'stabilty': did you mean stability?\n"
    script = tmp_path / "mine.py"
    script.write_text("import sys\nprint(sys.argv)")
    call(monkeypatch, "study", str(script), "--x")
    assert capsys.readouterr().out == f"['{script}', '--x']\n"


def test_help_of_a_study_tells_its_own_options_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # to be put back
    with pytest.raises(SystemExit):
        call(monkeypatch, "study", "few_shot_fusion", "--help")
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("usage: bermo-ray study few_shot_fusion")
    assert "Training rows per entity type." in out


def test_sums_of_whole_numbers_are_json(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT sum(seed) AS total, 0.5 AS half, ['nan'::DOUBLE, 1.0] AS listed FROM trials"
    call(monkeypatch, "query", sql, "--runs", str(runs), "--json")
    assert json.loads(capsys.readouterr().out) == [{"total": 1, "half": 0.5, "listed": [None, 1.0]}]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['bermo-ray', '--version']\n"
        "from bermo_ray.command_line.commands import main; main()\n"
        "print({'torch', 'ray', 'mlflow', 'transformers', 'matplotlib'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == f"bermo-ray {version('bermo-ray')}\nset()\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["table", "other"], "no study 'other' in"),
        (["table", "mine", "--parquet", "no/such/folder/x.parquet"], "--parquet: "),
        (["query", "SELECT x FROM trials"], "error: sql: Binder Error"),
        (["query", "SELECT 1", "--study", "other"], "no study 'other' in"),
        (["ui", "--runs", "nowhere"], "no studies in"),
        (["ui", "other", "--port", "0"], "no study 'other' in"),
    ],
)
def test_mistakes_are_one_line(
    runs: Path,
    words: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    extra = [] if "--runs" in words else ["--runs", str(runs)]
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, *words, *extra)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert line in err
    assert len(err.strip().splitlines()) == 1
