"""What a study will need, in lines: room for its checkpoints, and time."""

import re
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

from bermo_ray.command_line.display import format_clock
from bermo_ray.command_line.parsing import shown_path
from bermo_ray.command_line.session import Session
from bermo_ray.errors import UserError
from bermo_ray.forecast import (
    DiskForecast,
    TimeForecast,
    Workload,
    count_concurrent,
    forecast_disk,
    forecast_time,
)
from bermo_ray.record import Status
from bermo_ray.results.disk_text import format_bytes
from bermo_ray.results.table import load, load_all
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study

_NO_BREAK = "\N{NO-BREAK SPACE}"
_INDENT = " " * 9  # below the word that a line begins with
_NO_ROOM = "warning  less room is free than the study may need: free some, or give --storage"


def print_forecast(session: Session[Any]) -> None:
    """What the study will need, or why that can't be told; nothing where no trial is to be run."""
    work, store = find_workload(session), session.study.store
    if work is None:
        return
    try:
        disk = forecast_disk(work, store.checkpoints)
    except UserError as error:
        _print_line(session, f"disk     unknown: {error.problems[0]}")
        return
    _print_line(session, describe_disk(disk, store.checkpoints))
    if not disk.is_enough_free:
        _print_line(session, _NO_ROOM)
    try:
        text = describe_time(forecast_time(work, load_all(session.study.uri)))
    except UserError as error:
        text = f"time     unknown: {error.problems[0]}"
    _print_line(session, text)


def warn_of_room(session: Session[Any]) -> None:
    """Says before a study starts if its checkpoints may not fit."""
    work, checkpoints = find_workload(session), session.study.store.checkpoints
    if work is None:
        return
    with suppress(UserError):  # a study whose needs can't be told is run all the same
        disk = forecast_disk(work, checkpoints)
        if not disk.is_enough_free:
            _print_line(session, describe_disk(disk, checkpoints))
            _print_line(session, _NO_ROOM)


def find_workload(session: Session[Any]) -> Workload | None:
    """The trials that are still to be run; None where there are none."""
    study, options, plan = session.study, session.options, session.study.plan
    done = {known.trial.id for known in study.known_trials(options.resume)}
    ended = _find_ended(study) if options.resume else set()
    trials = plan.representatives()
    most = plan.most_trials - len(ended)
    if isinstance(plan, Grid):
        trials = [trial for trial in trials if trial.id not in done | ended]
        most = len(trials)
    if most < 1 or not trials:
        return None
    concurrent = count_concurrent(options.resources, options.concurrent, options.backend)
    return Workload(tuple(trials), most, options.resources, concurrent)


def _find_ended(study: Study) -> set[str]:
    """Ids of the trials of an interrupted study that have ended; none where it was not recorded."""
    try:
        rows = load(study.name, study.uri).to_pylist()
    except UserError:  # the resumed study says it better
        return set()
    return {row["trial_id"] for row in rows if Status(row["status"]).ended}


def describe_disk(disk: DiskForecast, checkpoints: str) -> str:
    """The room that is needed and the room there is, in a sentence."""
    size = f"{'' if disk.are_alike else 'up to '}{format_bytes(disk.trial_bytes)}"
    trials = f"{_count(disk.trials, 'trial')} of {size}, {disk.running} running"
    text = f"disk     at most {format_bytes(disk.most_bytes)} of checkpoints ({trials})"
    if disk.free_bytes is None:
        return f"{text} in {checkpoints}"
    place = shown_path(Path(checkpoints))
    return f"{text}; {format_bytes(disk.free_bytes)} are free in {place}"


def describe_time(time: TimeForecast) -> str:
    """How long it takes, what it costs, and how that is known, in a sentence."""
    value, unit = time.worker_seconds / 3600, "hours"
    if value < 0.1:
        value, unit = value * 60, "minutes"
    cost = f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
    sources = {"as recorded": time.recorded, "measured here": time.measured}
    how = " or ".join(source for source, is_used in sources.items() if is_used)
    return (
        f"time     about {format_clock(time.seconds)} of {_count(time.workers, 'worker')} "
        f"({cost} of worker time): {_count(time.trials, 'trial')} of "
        f"{_span(*time.steps)} steps at {_span(*map(round, time.rows_per_second))} rows/s, {how}"
    )


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_line(session: Session[Any], text: str) -> None:
    """Prints a sentence in lines of 80 columns; a number stays with its unit, a path as it is."""
    lines = textwrap.wrap(
        re.sub(r"(\d) (bytes|.B)\b", rf"\1{_NO_BREAK}\2", text),
        min(80, session.console.width),
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines:
        session.console.print(line.replace(_NO_BREAK, " "), soft_wrap=True, markup=False)
