"""The shell around studies: parsing, exit codes, signals, resuming, and what is printed.

The library knows no flags: its errors name fields, which become the options that a user typed.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from bermo_ray import plugins
from bermo_ray.command_line.display import Display, format_clock
from bermo_ray.command_line.forecast_text import print_forecast, warn_of_room
from bermo_ray.command_line.options import StudyOptions
from bermo_ray.command_line.parsing import parse, plain_options, resumed_options
from bermo_ray.command_line.program import EXIT_ALL_FAILED, EXIT_INTERRUPTED, run_command
from bermo_ray.command_line.session import (
    TEACHERS,
    Session,
    describe_ends,
    print_preview,
    print_resume_hint,
    print_sources,
    print_taken,
)
from bermo_ray.errors import StudyHaltedError, StudyInterrupted, UserError
from bermo_ray.record import Status
from bermo_ray.results.earlier import read_known_trials
from bermo_ray.search.grid import Grid
from bermo_ray.search.known_trials import KnownTrial
from bermo_ray.search.plan import Plan
from bermo_ray.study import Study, find_problems
from bermo_ray.tasks.registry import select_task
from bermo_ray.tracking.models import check_model_name
from bermo_ray.trial import Trial

__all__ = ["Session", "run_study"]
O = TypeVar("O", bound=StudyOptions)  # noqa: E741


def run_study(
    kind: str,
    options_type: type[O],
    make_plan: Callable[..., Plan],
    report: Callable[[Session[O], pa.Table], object],
    teachers: Callable[[O], Sequence[Trial]] | None = None,
) -> None:
    """A study script's main: options from the command line, trials, report.

    Args:
        kind: Name of the script; its studies' default name and MLflow experiment.
        options_type: Dataclass of the options.
        make_plan: Which trials the options ask for; where there are teachers, its second argument
            has the folder of each one's checkpoint by :attr:`Trial.id`.
        report: Prints, draws and publishes what came out.
        teachers: Trials that must be trained before the plan can be made: those that the store has
            are taken, the others are a study of their own, ``NAME-teachers``.
    """
    options = {option.name: option.name for option in fields(options_type)}
    options |= options_type.FIELD_OPTIONS | {"set": "set"}
    run_command(lambda: _run_study(kind, options_type, make_plan, report, teachers), options)


def _run_study(
    kind: str,
    options_type: type[O],
    make_plan: Callable[..., Plan],
    report: Callable[[Session[O], pa.Table], object],
    teachers: Callable[[O], Sequence[Trial]] | None,
) -> None:
    options = parse(options_type)
    if options.resume:
        options = resumed_options(kind, options)
    elif options.name is None:
        options = replace(options, name=f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}")
    plugins.add_working_directory()
    plugins.load_plugins(options.plugin)
    _check_options(options)
    if teachers is not None:
        wanted = teachers(options)
        _check_before_teaching(kind, options, make_plan, wanted)
        checkpoints = _train_teachers(kind, options, wanted)
        make_plan = partial(make_plan, checkpoints=checkpoints)
    session, problems = _make_session(kind, options, make_plan)
    if options.dry_run:
        print_preview(session)
        problems = [problem for problem in problems if _UNTRAINED not in problem]
        if not problems:  # what is missing is said instead
            print_forecast(session)
    if problems:
        raise UserError(*problems)
    if not options.dry_run:
        report(session, _run_trials(session))
        _register_best(session)


def _register_best(session: Session[O]) -> None:
    name = session.options.register
    if name is not None:
        version, about = session.study.register_best(name)
        session.console.print(f"model    {name}, version {version}: {about}", soft_wrap=True)


_UNTRAINED = "untrained-"  # in place of a teacher's folder, where a dry run trains none


def _check_before_teaching(
    kind: str, options: O, make_plan: Callable[..., Plan], teachers: Sequence[Trial]
) -> None:
    """Finds what is wrong with the study itself before its teachers are trained.

    Raises:
        UserError: with every problem.
    """
    if options.dry_run or not teachers:
        return
    folders = {trial.id: f"{_UNTRAINED}{trial.id}" for trial in teachers}
    _, problems = _make_session(kind, options, partial(make_plan, checkpoints=folders))
    if problems := [problem for problem in problems if _UNTRAINED not in problem]:
        raise UserError(*problems)


def _train_teachers(kind: str, options: O, trials: Sequence[Trial]) -> dict[str, str]:
    """The folders of the teachers' checkpoints by id; those that the store has not are trained.

    Raises:
        UserError: a teacher did not complete.
    """
    known = [] if options.fresh else read_known_trials(options.store.uri)
    usable = {k.trial.id: k for k in known if Path(k.checkpoint).is_dir()}
    missing = [trial for trial in trials if trial.id not in usable]
    if missing and options.dry_run:
        ids = ", ".join(trial.id for trial in missing)
        print(f"{len(missing)} teacher(s) would be trained first: {ids}")
        return {t.id: f"{_UNTRAINED}{t.id}" for t in missing} | _checkpoints(usable, trials)
    if missing:
        name = f"{options.name}{TEACHERS}"
        resume = options.resume and options.store.folder(name).is_dir()
        teaching = replace(options, name=name, resume=resume, fresh=True)
        session, problems = _make_session(f"{kind}{TEACHERS}", teaching, lambda _: Grid(missing))
        if problems:
            raise UserError(*problems)
        _run_trials(session)
        trained = read_known_trials(options.store.uri)
        usable |= {k.trial.id: k for k in trained if k.study == name}
    print_taken([usable[t.id] for t in trials if t.id in usable and t not in missing], "teacher")
    return _checkpoints(usable, trials)


def _checkpoints(teachers: Mapping[str, KnownTrial], trials: Sequence[Trial]) -> dict[str, str]:
    checkpoints = {}
    for trial in trials:
        if trial.id in teachers:
            if teachers[trial.id].report.status is not Status.COMPLETED:
                raise UserError(
                    f"teacher: the {trial.fusion.name} model of {trial.data.task} did not "
                    "complete; give other settings, or a `teacher` of your own"
                )
            checkpoints[trial.id] = teachers[trial.id].checkpoint
    return checkpoints


def _check_options(options: StudyOptions) -> None:
    """What can be seen of the options alone."""
    problems = [
        f"{name}: got {value}, expected >= 1"
        for name in ("trials", "concurrent")
        if (value := getattr(options, name, None)) is not None and value < 1
    ]
    unused = [name for name in ("kind", "metric") if getattr(options, name) is not None]
    if unused and not options.has_user_data:
        problems.append(f"{unused[0]}: it is for your own rows; give `train` or `dataset` too")
    if not options.seeds or len(set(options.seeds)) < len(options.seeds):
        problems.append(f"seeds: got {list(options.seeds)}, expected different numbers")
    try:
        if options.register is not None:
            check_model_name(options.register)
        options.check_paper()
    except UserError as error:
        problems += error.problems
    if problems:
        raise UserError(*problems)


def _make_session(
    kind: str, options: O, make_plan: Callable[[O], Plan]
) -> tuple[Session[O], list[str]]:
    """The study that the options describe, and all that is wrong with it.

    Raises:
        UserError: there is no plan; with all other problems.
    """
    assert options.name is not None
    try:
        plan = make_plan(options)
    except UserError as error:
        others = find_problems(options.name, options.resources, options.store, options.resume)
        raise UserError(*dict.fromkeys([*others, *error.problems])) from None
    study = Study(
        options.name,
        plan,
        options.resources,
        options.store,
        kind=kind,
        question=(type(options).__doc__ or "").split("\n\n")[0],
        settings=plain_options(options),
        backend=options.backend,
        concurrent=options.concurrent,
        plugins=options.plugin,
        listeners=[_make_display(options.name, plan)],
        reuse=not options.fresh,
        verbose=options.verbose,
        system_metrics=options.system_metrics,
    )
    problems: list[str] = []
    try:
        study.check(options.resume)
    except UserError as error:
        problems = list(dict.fromkeys(error.problems))
    trials = plan.representatives()
    if options.register and len({(t.data.task, t.backbone) for t in trials}) > 1:
        problems.append("register: the study has several tasks or encoders, so no best model")
    return Session(options, study), problems


class _StudyDisplay(Display):
    """The display of a program: a terminated process saves its state as one that is stopped by
    Ctrl-C. Ray sets a handler of its own when it starts, so this one is set behind it."""

    def on_open(self, most_trials: int, concurrent: int, where: str) -> None:
        super().on_open(most_trials, concurrent, where)
        signal.signal(signal.SIGTERM, lambda signum, frame: signal.raise_signal(signal.SIGINT))


def _make_display(name: str, plan: Plan) -> Display:
    tasks = {trial.data.task: trial.data for trial in plan.representatives()}
    try:
        metrics = {select_task(data).metric for data in tasks.values()}
    except UserError:  # the check of the trials says it better
        metrics = set()
    metric = metrics.pop() if len(metrics) == 1 else "metric"
    return _StudyDisplay(name, metric, plan.varied_fields())


def _run_trials(session: Session[O]) -> pa.Table:
    """Runs the study; Ctrl-C and a terminated process leave one that ``--resume`` takes up."""
    started = time.monotonic()
    print_sources(session)
    print_taken(session.study.known_trials(session.options.resume))
    warn_of_room(session)
    if session.options.backend == "ray":
        session.console.print("starting Ray ...")
    try:
        table = session.study.run(session.options.resume).table
    except StudyInterrupted:
        print_resume_hint(session)
        sys.exit(EXIT_INTERRUPTED)
    except StudyHaltedError:
        print_resume_hint(session)
        raise
    took = format_clock(time.monotonic() - started)
    taken = len(session.study.taken)
    more = f", {taken} taken from earlier studies" if taken else ""
    session.console.print(f"{table.num_rows - taken} trials ended in {took}{more}")
    for line in describe_ends(table):
        session.console.print(line)
    if not any(Status(status).measured for status in table["status"].to_pylist()):
        sys.exit(EXIT_ALL_FAILED)
    return table
