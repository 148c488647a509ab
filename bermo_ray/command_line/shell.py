"""The shell around studies: parsing, exit codes, signals, resuming, and what is printed.

The library knows no flags: its errors name fields, which become the options that a user typed.
"""

import inspect
import json
import shlex
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import tyro
from rich.console import Console
from rich.table import Table

from bermo_ray import plugins
from bermo_ray.command_line.display import Display, format_clock
from bermo_ray.command_line.options import StudyOptions
from bermo_ray.command_line.program import EXIT_ALL_FAILED, EXIT_INTERRUPTED, run_command
from bermo_ray.errors import StudyInterrupted, UserError
from bermo_ray.language.tasks import TASKS as EMBEDDED_TASKS
from bermo_ray.models.fusion import FUSIONS
from bermo_ray.record import Status
from bermo_ray.results.arm_figures import dots_figure
from bermo_ray.results.arm_text import arms_table, describe_verdicts
from bermo_ray.results.earlier import read_known_trials
from bermo_ray.results.report.blocks import DataTable
from bermo_ray.results.report.study_text import StudyText, copy_printed
from bermo_ray.results.verdicts import Verdict
from bermo_ray.search.grid import Grid
from bermo_ray.search.known_trials import KnownTrial
from bermo_ray.search.plan import Plan
from bermo_ray.study import STUDY_FILE, Study, find_problems
from bermo_ray.tasks.registry import TASKS, select_task
from bermo_ray.tracking.models import check_model_name
from bermo_ray.tracking.store import RUNS, store_uri
from bermo_ray.trial import Trial

O = TypeVar("O", bound=StudyOptions)  # noqa: E741

# Options that do not describe the study itself, so may differ when it is resumed.
_PASSING_OPTIONS = {"resume", "dry_run", "name", "runs", "verbose"}
# Options that change no number.
_PLACES = {"storage", "tracking_uri", "concurrent", "fresh", "register", "system_metrics"}


@dataclass
class Session(Generic[O]):
    """A study on the command line: what was asked, the study, and where to print."""

    options: O
    study: Study
    console: Console = field(default_factory=lambda: Console(highlight=False))
    printed: list[str | DataTable] = field(default_factory=list)

    def print(self, *things: Any) -> None:
        """Prints tables and lines, which the study's report shows too."""
        for thing in things:
            self.console.print(thing)
            self.printed.append(copy_printed(thing))

    def show_arms(
        self,
        means: pa.Table,
        label: str,
        rows: Sequence[str],
        arm: str = "fusion",
        published: Mapping[tuple[Any, ...], float] | None = None,
        note: str = "",
        file: str | None = None,
        scale: float = 100.0,
    ) -> Path:
        """Prints means of arms beside the paper's, draws ours and gives the figure's file.

        Args:
            means: From :func:`bermo_ray.results.mean_over_seeds`.
            label: What the numbers are, with their unit.
            rows: Columns that name a line.
            arm: The column whose values are the arms.
            published: The paper's numbers by (values of ``rows``..., arm), in the label's unit.
            note: Behind the label above the table.
            file: Name of the figure; that of the kind of study if not given.
            scale: What means are multiplied by: 100 for points.
        """
        self.print(arms_table(label + note, means, rows, arm, published, scale))
        path = self.study.folder / (file or f"{self.study.kind}.png")
        return dots_figure(means, rows, arm, label, path, scale)

    @property
    def where(self) -> str:
        """Tasks and encoders of the study in a few words, for its verdicts."""
        trials = self.study.plan.representatives()
        tasks = list(dict.fromkeys(trial.data.task for trial in trials))
        encoders = dict.fromkeys(Path(trial.backbone).name for trial in trials)
        shown = ", ".join(tasks) if len(tasks) <= 3 else f"{len(tasks)} tasks"
        return f"{shown} on {', '.join(encoders)}"

    def publish(
        self,
        tables: Mapping[str, pa.Table],
        figure_files: Sequence[Path] = (),
        verdicts: Sequence[Verdict] = (),
    ) -> None:
        """Prints the verdicts, keeps them, tables and figures with the study, and says where to
        look next."""
        for line in describe_verdicts(verdicts):
            indented = textwrap.fill(line, self.console.width, subsequent_indent=" " * 9)
            self.console.print(indented, soft_wrap=True)
        command = describe_command(self.study.kind, self.options)
        named = [replace(v, study=self.study.name, command=command) for v in verdicts]
        text = StudyText(_read_question(type(self.options)), command, self.printed)
        files = self.study.publish(tables, figure_files, named, text)
        uri, store = self.study.uri, self.study.store
        browse = [_shown(Path(sys.executable).with_name("bermo-ray")), "ui", self.study.name]
        argument = ""
        if uri != store_uri(Path(RUNS)):
            argument = f", uri={uri!r}"
            in_runs = uri == store_uri(store.runs.expanduser())
            browse += ["--runs", str(store.runs)] if in_runs else ["--tracking-uri", uri]
        names = textwrap.wrap(", ".join(file.name for file in files), self.console.width - 9)
        for line in (
            f"\nresults  {self.study.folder}/",
            *(f"         {part}" for part in names),
            f"browse   {shlex.join(browse)}",
            f"query    bermo_ray.load({self.study.name!r}{argument})",
        ):
            self.console.print(line, soft_wrap=True)


def _read_question(options_type: type[StudyOptions]) -> str:
    """The docstring of the script that defines these options, or else of the options."""
    script = sys.modules.get(options_type.__module__)
    return inspect.cleandoc(getattr(script, "__doc__", None) or options_type.__doc__ or "")


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
        options = _resumed_options(kind, options)
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
        _print_preview(session)
        problems = [problem for problem in problems if _UNTRAINED not in problem]
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


def parse(options_type: type[O]) -> O:
    """The command line's options; ``--help`` tells each with its default."""
    about = f"{options_type.__doc__}\n\nBy default: {options_type.DEFAULT}."
    if options_type.PAPER is not None:
        about += f" With --paper: {options_type.PAPER}."
    about += f"\n\n{describe_choices()}"
    order_options(options_type)
    return tyro.cli(options_type, description=about, config=(tyro.conf.FlagCreatePairsOff,))


def describe_choices() -> str:
    """The names that options of every study take."""
    real = [name for name in TASKS if name not in EMBEDDED_TASKS and "/" not in name]
    return (
        f"Tasks of the embedded language: {', '.join(EMBEDDED_TASKS)}. Real tasks: "
        f"{', '.join(real)}, senteval/NAME, wikiann/LANGUAGE. Fusions: {', '.join(FUSIONS)}."
    )


# What people set most, and what all else comes behind: a study's own options stand between.
_FIRST_OPTIONS = ("task", "tasks", "backbone", "backbones", "fusions")
_NEXT_OPTIONS = ("paper", "seeds", "epochs", "gpus", "workers", "name", "dry_run", "resume")


def order_options(options_type: type[StudyOptions]) -> None:
    """Puts the fields of a class of options in the order in which ``--help`` tells them: those of
    the base class would come first, whatever their use. They are set by name alone."""
    shared = {option.name for option in fields(StudyOptions)}

    def rank(name: str) -> tuple[int, int]:
        for group, names in enumerate((_FIRST_OPTIONS, (), _NEXT_OPTIONS)):
            if name in names:
                return group, names.index(name)
        return (3, 0) if name in shared else (1, 0)

    ordered = sorted(options_type.__dataclass_fields__.items(), key=lambda item: rank(item[0]))
    options_type.__dataclass_fields__ = dict(ordered)


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
        name = f"{options.name}-teachers"
        resume = options.resume and options.store.folder(name).is_dir()
        teaching = replace(options, name=name, resume=resume, fresh=True)
        session, problems = _make_session(f"{kind}-teachers", teaching, lambda _: Grid(missing))
        if problems:
            raise UserError(*problems)
        _run_trials(session)
        trained = read_known_trials(options.store.uri)
        usable |= {k.trial.id: k for k in trained if k.study == name}
    _print_taken([usable[t.id] for t in trials if t.id in usable and t not in missing], "teacher")
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


def _print_taken(taken: Sequence[KnownTrial], what: str = "trial") -> None:
    """Which earlier studies' trials are taken, one line for each study."""
    studies = Counter(known.study for known in taken)
    for study, count in studies.items():
        print(f"{count} {what}{'' if count == 1 else 's'} taken from {study}, not run again")


def _check_options(options: StudyOptions) -> None:
    """What can be seen of the options alone."""
    problems = [
        f"{name}: got {value}, expected >= 1"
        for name in ("trials", "concurrent")
        if (value := getattr(options, name, None)) is not None and value < 1
    ]
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
        settings=_plain_options(options),
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
    _print_sources(session)
    _print_taken(session.study.known_trials(session.options.resume))
    if session.options.backend == "ray":
        session.print("starting Ray ...")
    try:
        table = session.study.run(session.options.resume).table
    except StudyInterrupted:
        _print_resume_hint(session)
        sys.exit(EXIT_INTERRUPTED)
    took = format_clock(time.monotonic() - started)
    taken = len(session.study.taken)
    more = f", {taken} taken from earlier studies" if taken else ""
    session.console.print(f"{table.num_rows - taken} trials ended in {took}{more}")
    for line in describe_ends(table):
        session.console.print(line)
    if not any(Status(status).measured for status in table["status"].to_pylist()):
        sys.exit(EXIT_ALL_FAILED)
    return table


def describe_ends(table: pa.Table, most_lines: int = 5) -> list[str]:
    """How trials ended, in a line, and why those did not complete that did not, some of them.

    Args:
        table: The trials.
        most_lines: At most so many reasons; how many are left out is said.
    """
    rows = table.to_pylist()
    counts = Counter(row["status"] for row in rows)
    lines = ["  " + ", ".join(f"{count} {status}" for status, count in counts.most_common())]
    others = Counter(
        (row["status"], row["reason"] or "no reason known") for row in rows
        if row["status"] != Status.COMPLETED
    )  # fmt: skip
    for (status, reason), count in others.most_common(most_lines):
        lines.append(f"  {count} {status}: {reason}")
    left_out = sum(count for _, count in others.most_common()[most_lines:])
    return [*lines, *([f"  {left_out} more: see `bermo-ray table`"] if left_out else [])]


def _print_sources(session: Session[O]) -> None:
    """Where the rows of real tasks are read."""
    by_task = {trial.data.task: trial.data for trial in session.study.plan.representatives()}
    for name, data in by_task.items():
        task = select_task(data)
        for part in ("train", task.dev) if name.split("/")[0] not in EMBEDDED_TASKS else ():
            path = _shown(Path(task.open_source(data, part).where))
            session.console.print(f"{name}, {part}: {path}", soft_wrap=True)


def _print_resume_hint(session: Session[O]) -> None:
    study, runs = session.study, session.options.runs
    program = sys.argv[0]  # a script, or the words that stand for one
    start = program.split() if program.startswith("bermo-ray ") else [program]
    start = start if len(start) > 1 else [_shown(Path(sys.executable)), program]
    again = [*start, "--resume", "--name", study.name]
    again += [] if runs == Path(RUNS) else ["--runs", str(runs)]
    session.print("stopped; what is done is kept. Go on with:")
    session.console.print(f"  {shlex.join(again)}", soft_wrap=True)


def _print_preview(session: Session[O]) -> None:
    """What is known of the trials before any has run."""
    study, plan = session.study, session.study.plan
    rows = plan.preview()
    most = "" if len(rows) == plan.most_trials else "at most "
    names = list(dict.fromkeys(name for row in rows for name in row))
    shared = [n for n in names if len({row.get(n, "") for row in rows}) == 1 and len(rows) > 1]
    varied = [name for name in names if name not in shared]
    table = Table(box=None)
    for name in ["", *varied]:
        table.add_column(name)
    for number, row in enumerate(rows, 1):
        table.add_row(str(number), *(row.get(name, "") for name in varied))
    session.print(f"{study.name}: {most}{plan.most_trials} trials", table)
    first = plan.representatives()[0]
    common = [f"{name} {rows[0][name]}" for name in shared]
    numbers = sorted({trial.epochs for trial in plan.representatives()})
    epochs = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    common.append(f"{epochs} epochs of batches of {first.batch_size}")
    session.print(f"each: {', '.join(common)}, {study.resources.workers} worker(s)")
    _print_taken(study.known_trials(session.options.resume))


def _resumed_options(kind: str, options: O) -> O:
    """The options that a study was started with; those given now must agree.

    Raises:
        UserError: no such study, one of another kind, or other options.
    """
    runs = options.runs.expanduser()
    name = options.name or _newest_study(kind, runs)
    file = runs / name / STUDY_FILE
    if not file.is_file():
        raise UserError(f"resume: no study {name!r} in {runs}")
    content = json.loads(file.read_text())
    problems = []
    if content["kind"] != kind:
        problems.append(f"name: {name} is a study of {content['kind']}, not of {kind}")
    if content["folder"] != str(file.parent.absolute()):
        problems.append(f"runs: {name} was started in {content['folder']}; move it back")
    given, saved = _plain_options(options), content["settings"]
    defaults = _plain_options(type(options)())
    for option in fields(options):
        if option.name in _PASSING_OPTIONS or given[option.name] == defaults[option.name]:
            continue
        if given[option.name] != saved[option.name]:
            got, was = given[option.name], saved[option.name]
            problems.append(f"{option.name}: got {got}, but {name} was started with {was}")
    if problems:
        raise UserError(*problems)
    kept = {k: v for k, v in saved.items() if k not in _PASSING_OPTIONS}
    kept = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    return replace(options, **kept, name=name)


def _newest_study(kind: str, runs: Path) -> str:
    files = sorted(runs.glob(f"*/{STUDY_FILE}"), key=lambda file: file.stat().st_mtime)
    names = [f.parent.name for f in files if json.loads(f.read_text())["kind"] == kind]
    if not names:
        raise UserError(f"resume: no {kind} study in {runs}")
    return names[-1]


def describe_command(kind: str, options: StudyOptions) -> str:
    """What to type for the same numbers: the options that differ from their defaults, but for those
    that say where records lie."""
    words = ["python", f"studies/{kind}.py"]
    defaults = _plain_options(type(options)(paper=options.paper)) | {"paper": False}
    for name, value in _plain_options(options).items():
        if name in _PASSING_OPTIONS | _PLACES or value == defaults[name]:
            continue
        words.append(f"--{'set' if name == 'overrides' else name.replace('_', '-')}")
        if value is not True:
            words += map(str, value if isinstance(value, list) else [value])
    return shlex.join(words)


def _shown(path: Path) -> str:
    """A path as a person would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _plain_options(options: StudyOptions) -> dict[str, Any]:
    return {option.name: _plain(getattr(options, option.name)) for option in fields(options)}
