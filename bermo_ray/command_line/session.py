"""A study on the command line: what it prints before, at its end and of its results."""

import inspect
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bermo_ray.command_line.options import StudyOptions
from bermo_ray.command_line.parsing import describe_command, shown_path
from bermo_ray.language.tasks import TASKS as EMBEDDED_TASKS
from bermo_ray.record import Status
from bermo_ray.results.arm_figures import dots_figure
from bermo_ray.results.arm_text import arms_table, describe_verdicts
from bermo_ray.results.report.blocks import DataTable
from bermo_ray.results.report.study_text import StudyText, copy_printed
from bermo_ray.results.study_records import describe_refusals
from bermo_ray.results.verdicts import Verdict
from bermo_ray.search.known_trials import KnownTrial
from bermo_ray.study import Study
from bermo_ray.tasks.registry import select_task
from bermo_ray.tracking.store import RUNS, store_uri

O = TypeVar("O", bound=StudyOptions)  # noqa: E741
TEACHERS = "-teachers"  # what the name and kind of a study of teachers end with


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
        browse = [shown_path(Path(sys.executable).with_name("bermo-ray")), "ui", self.study.name]
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
        if self.study.refused:
            line = describe_refusals(self.study.refused, uri, self.study.folder)
            self.console.print(line, style="yellow", soft_wrap=True)
        if self.study.unsent:
            runs = [] if store.runs == Path(RUNS) else ["--runs", str(store.runs)]
            again = [*browse[:1], "sync", self.study.name, *runs]
            self.console.print(
                f"MLflow at {uri} is away: what it has not got is kept in {self.study.folder}/; "
                f"send it later with\n  {shlex.join(again)}",
                style="yellow",
                soft_wrap=True,
            )


def _read_question(options_type: type[StudyOptions]) -> str:
    """The docstring of the script that defines these options, or else of the options."""
    script = sys.modules.get(options_type.__module__)
    return inspect.cleandoc(getattr(script, "__doc__", None) or options_type.__doc__ or "")


def print_taken(taken: Sequence[KnownTrial], what: str = "trial") -> None:
    """Which earlier studies' trials are taken, one line for each study."""
    studies = Counter(known.study for known in taken)
    for study, count in studies.items():
        print(f"{count} {what}{'' if count == 1 else 's'} taken from {study}, not run again")


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


def print_sources(session: Session[O]) -> None:
    """Where the rows of real tasks are read."""
    by_task = {trial.data.task: trial.data for trial in session.study.plan.representatives()}
    for name, data in by_task.items():
        task = select_task(data)
        for part in ("train", task.dev) if name.split("/")[0] not in EMBEDDED_TASKS else ():
            path = shown_path(Path(task.open_source(data, part).where))
            session.console.print(f"{name}, {part}: {path}", soft_wrap=True)


def print_resume_hint(session: Session[O]) -> None:
    """What to type to go on with a study that was stopped."""
    study, runs = session.study, session.options.runs
    if study.kind.endswith(TEACHERS):
        session.console.print("stopped; start it again under another --name: what is done is taken")
        return
    python, program = Path(sys.executable), sys.argv[0]
    start = [shown_path(python), program]
    if program.startswith("bermo-ray study "):  # not a script, but words that stand for one
        name = program.removeprefix("bermo-ray study ")
        start = [shown_path(python.with_name("bermo-ray")), "study", name]
    again = [*start, "--resume", "--name", study.name]
    again += [] if runs == Path(RUNS) else ["--runs", str(runs)]
    session.console.print("stopped; what is done is kept. Go on with:")
    session.console.print(f"  {shlex.join(again)}", soft_wrap=True)


def print_preview(session: Session[O]) -> None:
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
    print_taken(study.known_trials(session.options.resume))
