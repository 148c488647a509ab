"""The study engine: from a space of trials to a table of results.

A script in ``studies/`` declares its options and its space; everything else is here.
"""

import functools
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import tyro
from rich.console import Console
from rich.table import Table

from bermo_ray import tracking
from bermo_ray.errors import UserError
from bermo_ray.results import figures
from bermo_ray.results.table import RUNS, load
from bermo_ray.search import cluster, tuner
from bermo_ray.search.progress import Progress, clock
from bermo_ray.search.searcher import ArmSearcher
from bermo_ray.search.space import Space
from bermo_ray.tasks import embedded, registry
from bermo_ray.tasks.source import DATA_VARIABLE
from bermo_ray.training.check import check
from bermo_ray.training.trainer import Resources
from bermo_ray.trial import Trial

INTERRUPTED = 130  # the shell's code for Ctrl-C


def _default(hint: str) -> Any:
    """What ``--help`` says of an option that is None until the study decides."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {hint})")


by_backbone = _default("by backbone")  # a study's own option that it decides by the encoder


@dataclass(frozen=True)
class StudyOptions:
    """What every study takes."""

    task: str = "tense"
    """What is learned: a task of the embedded language, GLUE (sst2, qqp, ...), senteval/NAME,
    conll2003, wikiann/LANGUAGE, squad, wikitext2 or text."""
    backbone: str = "embedded"
    """The encoder: 'embedded', a folder, or a name on the hub."""
    data_dir: Annotated[str | None, _default("$BERMO_DATA, else the hub")] = None
    """Folder of real tasks' parquet or original files."""
    train_rows: Annotated[int | float | None, _default("all there are")] = None
    """Rows to train on: a number, or a share below 1."""
    dev_rows: Annotated[int | float | None, _default("all there are")] = None
    """Rows to measure on: a number, or a share below 1."""
    shots: Annotated[int | None, _default("no few-shot")] = None
    """Few-shot: train on so many rows a class, drawn from all rows alike."""
    dev_half: Annotated[Literal["first", "second"] | None, _default("the whole")] = None
    """Measure on one half of the dev set, the same for every seed."""
    max_length: int = 128
    """Word pieces a row; longer rows are cut."""
    epochs: Annotated[int | None, by_backbone] = None
    """Passes over the training rows, each trial."""
    batch_size: Annotated[int | None, by_backbone] = None
    """Rows a step, over all workers of a trial."""
    teacher: Annotated[str | None, _default("none")] = None
    """Distil from it: folder of a fine-tuned model, or the id of an earlier trial."""
    warmup: float = 0.1
    """Warm-up of the learning rates: steps if 1 or more, else a share of all steps."""
    seed: int = 0
    """Seed of every trial and of the search."""
    trials: int = 8
    """Trials for each arm of the study (a fusion, say)."""
    workers: int = 1
    """Data-parallel workers of each trial."""
    gpus: bool = False
    """One GPU for each worker."""
    cpus_per_worker: int = 1
    """CPUs (and torch threads) of each worker."""
    concurrent: Annotated[int | None, _default("as many as fit")] = None
    """Trials at once."""
    name: Annotated[str | None, _default("kind, date and time")] = None
    """Name of the study."""
    runs: Path = Path(RUNS)
    """Folder for the records: MLflow's store, checkpoints, tables."""
    storage: Annotated[str | None, _default("below --runs")] = None
    """Where checkpoints go: on a cluster, a shared folder or URI."""
    tracking_uri: Annotated[str | None, _default("SQLite in --runs")] = None
    """An MLflow server or store."""
    resume: bool = False
    """Go on with the study of that name or, without one, with the newest of this kind."""
    dry_run: bool = False
    """Check everything and print the trials; run none."""

    def trial(self, epochs: int, batch_size: int) -> Trial:
        """The Trial that these options describe; the study's numbers where none are given."""
        # Ray's workers run in other directories and with other variables: all paths are resolved.
        place = self.data_dir or os.environ.get(DATA_VARIABLE)
        data = {
            "task": self.task,
            "train_rows": self.train_rows,
            "dev_rows": self.dev_rows,
            "shots": self.shots,
            "dev_half": self.dev_half,
            "max_length": self.max_length,
            "data_dir": str(Path(place).expanduser().resolve()) if place else None,
        }
        folder = Path(self.backbone).expanduser()
        return Trial().replace(
            data=data,
            distillation={"teacher": self._teacher()} if self.teacher else None,
            backbone=str(folder.resolve()) if folder.is_dir() else self.backbone,
            epochs=epochs if self.epochs is None else self.epochs,
            batch_size=batch_size if self.batch_size is None else self.batch_size,
            optimizer__warmup=int(self.warmup) if self.warmup >= 1 else self.warmup,
            seed=self.seed,
        )

    def _teacher(self) -> str:
        """The folder of the teacher's weights."""
        assert self.teacher is not None
        folder = Path(self.teacher).expanduser()
        if folder.is_dir():
            return str(folder.resolve())
        uri = tracking.store_uri(self.runs.expanduser(), self.tracking_uri)
        absent = uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file()
        if "/" in self.teacher or absent:
            raise UserError(f"--teacher: no folder {self.teacher!r}, and no trial of that id")
        place = tracking.find_trial(uri, self.teacher).data.tags.get("bermo.checkpoint", "")
        if not place or not Path(place).is_dir():
            raise UserError(
                f"--teacher: the checkpoint of {self.teacher} is not a folder here: {place!r}; "
                "copy it to one that every node sees and give that"
            )
        return place


O = TypeVar("O", bound=StudyOptions)  # noqa: E741
# What does not describe the study itself, so may differ when it is resumed.
_PASSING = {"resume", "dry_run", "name", "runs"}
STORAGE_VARIABLE = "BERMO_STORAGE"  # stands in for `--storage`; set on a cluster's head


def command(main: Callable[[], object]) -> Callable[[], None]:
    """A script's main: a user's mistake is one line each on stderr and exit code 2."""

    @functools.wraps(main)
    def wrapped() -> None:
        try:
            main()
        except UserError as error:
            for problem in error.problems:
                print(f"error: {problem}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            sys.exit(INTERRUPTED)

    return wrapped


def parse(options: type[O]) -> O:
    """The command line's options; ``--help`` tells each with its default."""
    return tyro.cli(options, description=options.__doc__, config=(tyro.conf.FlagCreatePairsOff,))


class Study:
    """A named search over a space, with its records.

    Everything is checked when it is made; :meth:`run` runs it or takes it up again.
    """

    def __init__(self, kind: str, options: StudyOptions, space: Callable[[Any], Space]) -> None:
        self.kind = kind
        self.console = Console(highlight=False)
        runs = options.runs.expanduser()
        if options.resume:
            options = self._as_before(options, runs)
        else:
            options = replace(
                options, name=options.name or f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"
            )
        assert options.name is not None
        self.name, self.options, self.runs = options.name, options, runs
        self.folder = runs / self.name
        self.uri = tracking.store_uri(runs, options.tracking_uri)
        asked = options.storage or os.environ.get(STORAGE_VARIABLE)
        self.shared = asked is not None
        self.storage = asked or str(runs / "checkpoints")
        if "://" not in self.storage:
            self.storage = str(Path(self.storage).expanduser().absolute())
        self.resources = Resources(
            workers=options.workers,
            gpus=options.gpus,
            cpus_per_worker=options.cpus_per_worker,
        )
        self.space = self._checked(space)

    def _checked(self, space: Callable[[Any], Space]) -> Space:
        """Every problem that can be seen without Ray, all at once."""
        options, problems = self.options, []
        for field in ("workers", "cpus_per_worker", "trials", "concurrent"):
            value = getattr(options, field)
            if value is not None and value < 1:
                problems.append(f"--{field.replace('_', '-')}: got {value}, expected >= 1")
        if not re.fullmatch(r"[\w.-]+", self.name):
            problems.append(f"--name: got {self.name!r}, expected letters, digits, and . _ -")
        nearest = next(
            p for p in (self.folder.absolute(), *self.folder.absolute().parents) if p.exists()
        )
        if not os.access(nearest, os.W_OK):
            problems.append(f"--runs: can't write in {nearest}")
        if not options.resume and self.folder.exists():
            problems.append(f"--name: a study {self.name!r} exists; --resume it or rename")
        made = None
        try:
            made = space(options)
            check([*made.arms.values(), *made.fixed], max(1, options.workers))
        except UserError as error:
            problems += error.problems
        if not self.uri.startswith("sqlite:///"):
            try:
                tracking.client(self.uri)
            except UserError as error:
                problems += error.problems
        if problems or made is None:
            raise UserError(*problems)
        return made

    def _as_before(self, options: StudyOptions, runs: Path) -> StudyOptions:
        """The options that the study was started with; those given now must agree."""
        name = options.name
        if name is None:
            files = sorted(runs.glob("*/study.json"), key=lambda f: f.stat().st_mtime)
            found = [f for f in files if json.loads(f.read_text())["kind"] == self.kind]
            if not found:
                raise UserError(f"--resume: no {self.kind} study in {runs}")
            name = found[-1].parent.name
        file = runs / name / "study.json"
        if not file.is_file():
            raise UserError(f"--resume: no study {name!r} in {runs}")
        content = json.loads(file.read_text())
        saved, mine = content["options"], _plain(options)
        problems = []
        if content["kind"] != self.kind:
            problems.append(f"--name: {name} is a study of {content['kind']}, not of {self.kind}")
        if content["folder"] != str(file.parent.absolute()):
            problems.append(f"--runs: {name} was started in {content['folder']}; move it back")
        for field in fields(options):
            given = mine[field.name]
            is_default = given == _plain_value(field.default)
            if field.name not in _PASSING and not is_default and given != saved[field.name]:
                flag = field.name.replace("_", "-")
                was = saved[field.name]
                problems.append(f"--{flag}: got {given}, but {name} was started with {was}")
        if problems:
            raise UserError(*problems)
        kept = {k: v for k, v in saved.items() if k not in _PASSING}
        kept = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
        return replace(options, **kept, name=name)

    def show(self) -> None:
        """Prints the trials without running any: the fixed ones, the walk, and what is searched."""
        searcher = self._searcher()
        table = Table(title=f"{self.name}: {searcher.total} trials", title_justify="left", box=None)
        keys = {key: key.split("__")[-1].replace("_", " ") for key in self.space.ranges}
        for column in ("", "fusion", "pruning", *keys.values(), "id"):
            table.add_column(column, justify="right" if column in keys.values() else "left")
        for place in range(searcher.total):
            config = searcher.suggest(str(place))
            assert isinstance(config, dict)
            trial = Trial.from_json(config["trial"])
            number = (place - len(self.space.fixed)) // len(self.space.arms)
            known = searcher.walked(number)
            values = []
            for key, span in self.space.ranges.items():
                section, _, field = key.partition("__")
                if trial.pruning is None and section == "pruning":
                    values.append("")
                elif place < len(self.space.fixed) or key in known:
                    values.append(f"{getattr(getattr(trial, section), field):.3g}")
                else:
                    values.append(f"{span.low:g}–{span.high:g}")
            method = trial.pruning.method if trial.pruning else "dense"
            fixed = place < len(self.space.fixed)
            shown_id = trial.id if fixed else "by search"
            table.add_row(str(place + 1), trial.fusion.name, method, *values, shown_id)
        self.console.print(table)
        first = next(iter(self.space.arms.values()))
        self.console.print(
            f"each: task {first.data.task}, backbone {first.backbone}, {first.epochs} epochs of "
            f"batches of {first.batch_size}, seed {first.seed}, {self.resources.workers} worker(s)"
        )

    def _searcher(self) -> ArmSearcher:
        common = {"resources": asdict(self.resources), "storage": self.storage}
        return ArmSearcher(self.space, self.options.trials, self.options.seed, common)

    def run(self) -> pa.Table:
        """Runs the trials (or, with --dry-run, prints them and exits) and gives the results table.

        Ctrl-C and a terminated process leave a study that ``--resume`` takes up again.
        """
        if self.options.dry_run:
            self.show()
            sys.exit(0)
        started = time.monotonic()
        ray_cluster = cluster.connect()
        concurrent = cluster.concurrency(ray_cluster, self.resources, self.options.concurrent)
        if ray_cluster.nodes > 1 and not self.shared:
            raise UserError(
                "--storage: trials may move between the cluster's nodes; give a folder or URI that "
                f"all of them see (or set {STORAGE_VARIABLE})"
            )
        searcher = self._searcher()
        parent = self._open()
        task = registry.get(self.options.task)
        where = "a Ray of its own" if ray_cluster.started_here else "the running Ray cluster"
        self.console.print(
            f"{self.name}: {searcher.total} trials, {concurrent} at once, on {where} "
            f"({ray_cluster.cpus:g} CPUs, {ray_cluster.gpus:g} GPUs)"
        )
        data = next(iter(self.space.arms.values())).data
        for part in ("train", task.dev) if task.name not in embedded.TASKS else ():
            self.console.print(
                f"{part}: {_shown(Path(task.open(data, part).where))}", soft_wrap=True
            )
        callbacks = [
            tracking.Tracker(self.uri, self.name, parent, figures.of_trial),
            Progress(searcher.total, concurrent, task.metric),
        ]
        signal.signal(signal.SIGTERM, _like_ctrl_c)  # saved like a study that is stopped
        ended = tuner.run(
            searcher,
            name=self.name,
            storage=self.storage,
            resources=self.resources,
            concurrent=concurrent,
            callbacks=callbacks,
            resume=self.options.resume,
        )
        if ray_cluster.started_here:
            import ray

            ray.shutdown()
        if not ended:
            tracking.close_study(self.uri, parent, "interrupted", [])
            self._stopped()
        self.parent = parent
        self.console.print(f"{searcher.total} trials ended in {clock(time.monotonic() - started)}")
        return load(self.name, self.uri)

    def _open(self) -> str:
        if self.options.resume:
            found = tracking.find_study(self.uri, self.name)
            if found is None:
                raise UserError(f"--resume: study {self.name!r} is not in {self.uri}")
            tracking.reopen_study(self.uri, found.info.run_id)
            if not tuner.has_state(self.storage, self.name):
                tracking.forget_unfinished(self.uri, found.info.run_id)
            return str(found.info.run_id)
        parent = tracking.open_study(
            self.uri, self.kind, self.name, _plain(self.options), self.space.to_json()
        )
        self.folder.mkdir(parents=True)
        content = {
            "kind": self.kind,
            "folder": str(self.folder.absolute()),
            "options": _plain(self.options),
        }
        (self.folder / "study.json").write_text(json.dumps(content, indent=1))
        return parent

    def _stopped(self) -> NoReturn:
        again = [_shown(Path(sys.executable)), sys.argv[0], "--resume", "--name", self.name]
        again += [] if self.runs == Path(RUNS) else ["--runs", str(self.runs)]
        self.console.print("stopped; what is done is kept. Go on with:")
        self.console.print(f"  {shlex.join(again)}", soft_wrap=True)
        sys.exit(INTERRUPTED)

    def publish(self, tables: dict[str, pa.Table], drawn: list[Path]) -> None:
        """Keeps tables (as parquet) and figures in the study's folder and its MLflow run."""
        files = list(drawn)
        for name, table in tables.items():
            file = self.folder / f"{name}.parquet"
            partial = file.with_suffix(".partial")
            pq.write_table(table, partial)
            partial.replace(file)
            files.append(file)
        tracking.close_study(self.uri, self.parent, "completed", files)
        browse = [_shown(Path(sys.executable).with_name("bermo-ray")), "ui"]
        uri = ""
        if self.uri != tracking.store_uri(Path(RUNS)):
            uri = f", uri={self.uri!r}"
            is_own = self.uri == tracking.store_uri(self.runs)
            browse += ["--runs", str(self.runs)] if is_own else ["--tracking-uri", self.uri]
        names = ", ".join(f.name for f in files)
        self.console.print(f"\nresults  {self.folder}/", soft_wrap=True)
        self.console.print(f"         {names}", soft_wrap=True)
        self.console.print(f"browse   {shlex.join(browse)}", soft_wrap=True)
        self.console.print(f"query    bermo_ray.results.load({self.name!r}{uri})", soft_wrap=True)


def _shown(path: Path) -> str:
    """A path as a person would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _like_ctrl_c(signum: int, frame: Any) -> None:
    signal.raise_signal(signal.SIGINT)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _plain(options: StudyOptions) -> dict[str, Any]:
    return {f.name: _plain_value(getattr(options, f.name)) for f in fields(options)}
