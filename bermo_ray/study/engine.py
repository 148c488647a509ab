"""The study engine: from a plan of trials to a table of results.

A script in ``studies/`` declares its options and its plan; everything else is here.
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
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Generic, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bermo_ray import tracking
from bermo_ray.errors import UserError
from bermo_ray.results import figures
from bermo_ray.results.table import RUNS, load
from bermo_ray.search import cluster, tuner
from bermo_ray.search.plan import Plan
from bermo_ray.search.progress import Progress, clock
from bermo_ray.search.searcher import PlanSearcher
from bermo_ray.study.options import O, StudyOptions
from bermo_ray.tasks import embedded, registry
from bermo_ray.training.check import check
from bermo_ray.training.trainer import Resources

INTERRUPTED = 130  # the shell's code for Ctrl-C


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


class Study(Generic[O]):
    """A named search over a space, with its records.

    Everything is checked when it is made; :meth:`run` runs it or takes it up again.
    """

    def __init__(self, kind: str, options: O, plan: Callable[[O], Plan]) -> None:
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
        self.plan = self._checked(plan)

    def _checked(self, plan: Callable[[O], Plan]) -> Plan:
        """Every problem that can be seen without Ray, all at once."""
        options, problems = self.options, []
        for field in ("workers", "cpus_per_worker", "trials", "concurrent"):
            value = getattr(options, field, None)
            if value is not None and value < 1:
                problems.append(f"--{field.replace('_', '-')}: got {value}, expected >= 1")
        if not re.fullmatch(r"[\w.-]+", self.name):
            problems.append(f"--name: got {self.name!r}, expected letters, digits, and . _ -")
        if not options.seeds or len(set(options.seeds)) < len(options.seeds):
            problems.append(f"--seeds: got {list(options.seeds)}, expected different numbers")
            raise UserError(*problems)
        nearest = next(
            p for p in (self.folder.absolute(), *self.folder.absolute().parents) if p.exists()
        )
        if not os.access(nearest, os.W_OK):
            problems.append(f"--runs: can't write in {nearest}")
        if not options.resume and self.folder.exists():
            problems.append(f"--name: a study {self.name!r} exists; --resume it or rename")
        made = None
        try:
            made = plan(options)
            check(made.examples(), max(1, options.workers))
        except UserError as error:
            problems += error.problems
        if not self.uri.startswith("sqlite:///"):
            try:
                tracking.client(self.uri)
            except UserError as error:
                problems += error.problems
        if problems or made is None:
            raise UserError(*dict.fromkeys(problems))
        return made

    def _as_before(self, options: O, runs: Path) -> O:
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
        mine = _plain(options)
        defaults = {f.name: _plain_value(f.default) for f in fields(options)}
        saved = defaults | content["options"]  # written before an option there is now
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
        """Prints what is known of the trials, running none."""
        rows = self.plan.preview()
        most = "" if len(rows) == self.plan.most else "at most "
        self.console.print(f"{self.name}: {most}{self.plan.most} trials")
        table = Table(box=None)
        names = list(dict.fromkeys(name for row in rows for name in row))
        same = {n for n in names if len({row.get(n, "") for row in rows}) == 1 and len(rows) > 1}
        for name in ["", *(n for n in names if n not in same)]:
            table.add_column(name)
        for number, row in enumerate(rows, 1):
            table.add_row(str(number), *(row.get(n, "") for n in names if n not in same))
        self.console.print(table)
        first = self.plan.examples()[0]
        said = ", ".join(f"{n} {rows[0][n]}" for n in names if n in same)
        self.console.print(
            f"each: {said}{', ' if said else ''}{first.epochs} epochs of batches of "
            f"{first.batch_size}, {self.resources.workers} worker(s)"
        )

    def _searcher(self) -> PlanSearcher:
        common = {"resources": asdict(self.resources), "storage": self.storage}
        return PlanSearcher(self.plan, common)

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
        where = "a Ray of its own" if ray_cluster.started_here else "the running Ray cluster"
        self.console.print(
            f"{self.name}: {self.plan.most} trials, {concurrent} at once, on {where} "
            f"({ray_cluster.cpus:g} CPUs, {ray_cluster.gpus:g} GPUs)"
        )
        datas = {t.data.task: t.data for t in self.plan.examples()}
        for name, data in datas.items():
            task = registry.get(name)
            for part in ("train", task.dev) if name not in embedded.TASKS else ():
                place = _shown(Path(task.open(data, part).where))
                self.console.print(f"{name}, {part}: {place}", soft_wrap=True)
        metrics = {registry.get(name).metric for name in datas}
        callbacks = [
            tracking.Tracker(self.uri, self.name, parent, figures.of_trial),
            Progress(
                self.plan.most,
                concurrent,
                metrics.pop() if len(metrics) == 1 else "metric",
                several=len(datas) > 1,
            ),
        ]
        signal.signal(signal.SIGTERM, _like_ctrl_c)  # saved like a study that is stopped
        plan = tuner.run(
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
        if plan is None:
            tracking.close_study(self.uri, parent, "interrupted", [])
            self._stopped()
        self.parent, self.plan = parent, plan
        table = load(self.name, self.uri)
        took = clock(time.monotonic() - started)
        self.console.print(f"{table.num_rows} trials ended in {took}")
        return table

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
            self.uri, self.kind, self.name, _plain(self.options), self.plan.to_json()
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
