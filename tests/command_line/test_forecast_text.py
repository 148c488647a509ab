"""What a dry run says of disk and time."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from bermo_ray import forecast
from bermo_ray.command_line import forecast_text
from bermo_ray.command_line.forecast_text import (
    describe_disk,
    describe_time,
    find_workload,
    print_forecast,
    warn_of_room,
)
from bermo_ray.command_line.options import OneTaskOptions
from bermo_ray.errors import UserError
from bermo_ray.forecast import DiskForecast, TimeForecast
from bermo_ray.record import Report
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study
from bermo_ray.trial import Trial
from tests.support.checkpoints import completed, write_study
from tests.support.studies import run_script
from tests.support.trial_store import small_trial

DISK = DiskForecast(18, 10_000_000, True, 2, 1_200_000_000, 40_000_000_000)
TIME = TimeForecast(725.0, 1440.0, 2, 18, (96, 96), (210.2, 210.2), False, True)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where studies are kept, by a short name."""
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def session_of(trials: list[Trial], runs: Path, **options: Any) -> Any:
    given = OneTaskOptions(runs=runs, name="s", backend="process", **options)
    study = Study("s", Grid(trials), given.resources, given.store, backend="process")
    console = Console(record=True, width=80, highlight=False, quiet=False)
    return SimpleNamespace(study=study, options=given, console=console)


def printed(session: Any) -> list[str]:
    lines: list[str] = session.console.export_text().splitlines()
    assert all(len(line) <= 80 for line in lines), lines
    return lines


def test_sentences() -> None:
    assert describe_disk(DISK, str(Path.cwd() / "runs" / "checkpoints")) == (
        "disk     at most 1.2 GB of checkpoints (18 trials of 10 MB, 2 running); "
        "40 GB are free in runs/checkpoints"
    )
    one = replace(DISK, trials=1, running=1, are_alike=False, free_bytes=None)
    assert describe_disk(one, "s3://bucket/runs") == (
        "disk     at most 1.2 GB of checkpoints (1 trial of up to 10 MB, 1 running) in "
        "s3://bucket/runs"
    )
    assert describe_time(TIME) == (
        "time     about 12:05 of 2 workers (0.4 hours of worker time): 18 trials of 96 steps at "
        "210 rows/s, measured here"
    )
    assert "of 2 workers (1.5 minutes of worker" in describe_time(
        replace(TIME, worker_seconds=90.0)
    )
    mixed = replace(
        TIME, worker_seconds=360_000.0, steps=(10, 96), rows_per_second=(25.0, 80.0), recorded=True
    )
    assert describe_time(mixed).endswith(
        "(100 hours of worker time): 18 trials of 10 to 96 steps at 25 to 80 rows/s, as recorded "
        "or measured here"
    )


def test_a_study_is_forecast_in_lines_of_80_columns(tiny: str, runs: Path) -> None:
    trials = [small_trial(tiny, seed=seed) for seed in range(3)]
    session = session_of(trials, runs)
    print_forecast(session)
    text = " ".join(" ".join(printed(session)).split())
    assert "disk at most" in text
    assert "(3 trials of 2" in text  # some 200 kB
    assert "3 trials of 4 steps at" in text
    assert text.endswith("rows/s, measured here")
    assert not (runs).exists()


def test_a_number_stays_with_its_unit(
    tiny: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = replace(DISK, trials=118_000)
    monkeypatch.setattr(forecast_text, "forecast_disk", lambda *_: disk)
    monkeypatch.setattr(forecast_text, "forecast_time", lambda *_: TIME)
    session = session_of([small_trial(tiny)], runs)
    print_forecast(session)
    assert printed(session) == [
        "disk     at most 1.2 GB of checkpoints (118000 trials of 10 MB, 2 running);",
        "         40 GB are free in runs/checkpoints",
        "time     about 12:05 of 2 workers (0.4 hours of worker time): 18 trials of 96",
        "         steps at 210 rows/s, measured here",
    ]


def test_too_little_room_is_a_warning_in_both(
    tiny: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "_free_bytes", lambda folder: 1000)
    session = session_of([small_trial(tiny)], runs)
    warning = "warning  less room is free than the study may need: free some, or give --storage"
    print_forecast(session)
    assert warning in printed(session)
    warn_of_room(session)
    (*_, last) = printed(session)
    assert last == warning
    monkeypatch.setattr(forecast, "_free_bytes", lambda folder: 10**12)
    warn_of_room(session)
    assert printed(session) == []


def test_gpus_that_are_not_here_have_no_time(
    tiny: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    session = session_of([small_trial(tiny)], runs, gpus=True)
    print_forecast(session)
    assert printed(session)[-1].strip() == (
        "time     unknown: no GPU here to measure on, and no trial like these is recorded"
    )


def test_needs_that_can_not_be_told_stop_nothing(
    tiny: str, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("fusion 'odd' can't be built without weights: no")

    monkeypatch.setattr(forecast, "estimate_needs", refuse)
    session = session_of([small_trial(tiny)], runs)
    warn_of_room(session)
    assert printed(session) == []
    print_forecast(session)
    assert printed(session) == ["disk     unknown: fusion 'odd' can't be built without weights: no"]


def test_what_is_done_is_not_needed_again(tiny: str, runs: Path) -> None:
    trials = [small_trial(tiny, seed=seed) for seed in range(3)]
    running = Report(step=1, metric=0.5)
    write_study(runs, "s", [(trials[0], completed(1.0, 0.9)), (trials[1], running)])
    work = find_workload(session_of(trials, runs, resume=True))
    assert work is not None
    assert list(work.trials) == trials[1:]
    assert work.most_trials == 2
    assert find_workload(session_of(trials[:1], runs, resume=True)) is None
    unrecorded = find_workload(session_of(trials, Path("nowhere"), resume=True))
    assert unrecorded is not None
    assert unrecorded.most_trials == 3


def test_a_dry_run_ends_with_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--dry-run", "--trials", "2", "--train-rows", "100", "--epochs", "1")
    code, out, err = run_script(monkeypatch, capsys, "l0_frontier", *options)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line[:9] for line in lines[-4:]] == ["disk     ", " " * 9, "time     ", " " * 9]
    assert " ".join(" ".join(lines[-4:-2]).split()).endswith("GB are free in runs/checkpoints")
    assert "24 trials of 7" in " ".join(" ".join(lines[-2:]).split())
    # What is missing is said instead.
    code, out, err = run_script(monkeypatch, capsys, "l0_frontier", "--task", "sst2", "--dry-run")
    assert code == 2
    assert "disk  " not in out
