"""Study: a plan, where its trials run, and where its records go -> a table of results."""

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bermo_ray.backends import make_backend
from bermo_ray.errors import StudyHaltedError, StudyInterrupted, UserError
from bermo_ray.passwords import HIDDEN, hide_password
from bermo_ray.record import SCHEMA, Listener, Status
from bermo_ray.results import figures
from bermo_ray.results.best_trial import pick_best_trial
from bermo_ray.results.earlier import read_known_trials
from bermo_ray.results.report import STUDY_TEXT_FILE, StudyText
from bermo_ray.results.study_records import describe_study, publish_study
from bermo_ray.results.study_results import Results
from bermo_ray.results.table import load, to_table
from bermo_ray.results.verdicts import VERDICT_FILE, Verdict, dump_verdicts
from bermo_ray.search.dialogue import LOG_FILE, Dialogue
from bermo_ray.search.grid import Grid
from bermo_ray.search.known_trials import KnownTrial, ReusingPlan
from bermo_ray.search.plan import Plan
from bermo_ray.space import OutOfSpaceError, watch_space
from bermo_ray.tasks.registry import select_task
from bermo_ray.tracking import study_page, study_run
from bermo_ray.tracking.models import register_model
from bermo_ray.tracking.moved import follow_move
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.store import (
    SQLITE,
    STUDY_FILE,
    Store,
    connect,
    find_study,
    first_line,
    is_outage,
    is_refusal,
    store_uri,
)
from bermo_ray.tracking.system_metrics import check_system_metrics, record_system_metrics
from bermo_ray.training.check import check_trials
from bermo_ray.training.checkpoint_folder import CheckpointFolder
from bermo_ray.training.reporter import Resources


class Study:
    """A named run of a plan, with its records. It reads no command line, prints nothing and can be
    run in a thread or a notebook.

    1. :meth:`check` finds every problem that can be seen before anything starts.
    2. :meth:`run` runs the trials, or goes on with those of an interrupted study.
    3. :meth:`publish` keeps tables, figures and verdicts made of the results.

    A trial that an earlier study in the same store ran to its end, with the same code and as many
    workers, is not run again: :attr:`taken` says which, and the results table has their rows.

    Args:
        name: Letters, digits, and ``. _ -``; unique in its store.
        plan: Which trials are run.
        resources: What one trial takes.
        store: Where records go.
        kind: What sort of study it is: the MLflow experiment that it belongs to.
        question: What the study asks, in a sentence, for its description.
        settings: What describes the study, kept with it; a resumed study must have the same.
        backend: ``ray``, or ``process`` for this process alone.
        concurrent: Trials at once; as many as fit, if None.
        plugins: Modules that define what the trials name.
        listeners: Who else hears of the trials.
        reuse: Whether trials of earlier studies are taken.
        verbose: Whether Ray's own words are shown.
        system_metrics: Whether the use of this machine is recorded with the study.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        resources: Resources | None = None,
        store: Store | None = None,
        *,
        kind: str = "study",
        question: str = "",
        settings: Mapping[str, Any] | None = None,
        backend: Literal["ray", "process"] = "ray",
        concurrent: int | None = None,
        plugins: Sequence[str] = (),
        listeners: Sequence[Listener] = (),
        reuse: bool = True,
        verbose: bool = False,
        system_metrics: bool = False,
    ) -> None:
        self.name, self.plan, self.kind, self.reuse = name, plan, kind, reuse
        self.question, self.system_metrics = question, system_metrics
        self.taken: list[KnownTrial] = []
        self.resources, self.store = resources or Resources(), store or Store()
        self.settings, self.listeners = dict(settings or {}), list(listeners)
        self.backend = make_backend(backend, self.resources, concurrent, plugins, verbose)
        self.folder, self.uri = self.store.folder(name), self.store.uri
        self._created = time.time()
        self._run_id: str | None = None
        self._is_checked = False
        self.unsent = 0
        """Records that MLflow was not there to take; :func:`bermo_ray.results.sync_study` sends
        them later."""
        self.refused: list[str] = []
        """What MLflow will never take, a line for each trial; it is in the tables all the same."""

    def check(self, resume: bool = False) -> None:
        """Finds every problem that can be seen without starting anything.

        Raises:
            UserError: with all of them, one line each.
        """
        problems = find_problems(self.name, self.resources, self.store, resume)
        problems += self.backend.find_problems(self.store)
        try:
            if self.system_metrics:
                check_system_metrics()
            workers = max(1, self.resources.workers)
            trials, gpus = self.plan.representatives(), self.resources.gpus
            check_trials(trials, workers, self.plan.chooses, gpus)
        except UserError as error:
            problems += error.problems
        if problems:
            raise UserError(*dict.fromkeys(problems))
        self._is_checked = True

    def run(self, resume: bool = False) -> Results:
        """Runs the trials and gives the results.

        Args:
            resume: Goes on with the interrupted study of this name.

        Returns:
            The trials as ``table``: of a grid as it lists them, of a search as they started.

        Raises:
            UserError: as :meth:`check`; the backend can't run the trials; nothing to resume.
            StudyInterrupted: it was stopped; what is done is kept.
            StudyHaltedError: a disk is full, or Ray broke; likewise.
        """
        try:
            return Results(in_plan_order(self._run_trials(resume), self.plan))
        except KeyboardInterrupt as error:
            if (self.folder / STUDY_FILE).is_file():
                raise StudyInterrupted(self.name) from error
            raise  # before there was anything to resume

    def _run_trials(self, resume: bool) -> pa.Table:
        if not self._is_checked:
            self.check(resume)
        self._is_checked = False  # a second run of this study is another one
        plan = ReusingPlan(self.plan, self._find_known(resume)) if self.reuse else self.plan
        if plan.finished:  # all of it is known
            with self._open_run(resume) as recorder:
                self._close_plan(plan)
            return self._close_records(recorder)
        try:
            concurrent, where = self.backend.open(self.store)
            with self._open_run(resume) as recorder:
                dialogue = Dialogue(plan, self.folder / LOG_FILE)
                for listener in self.listeners:
                    listener.on_open(plan.most_trials, concurrent, where)
                listeners = [recorder, *self.listeners]
                for known in dialogue.resume():
                    for listener in listeners:
                        listener.on_known(*known)
                ended = self.backend.run(dialogue, listeners, self.store, self.name)
                if ended is None:
                    raise StudyInterrupted(self.name)
                self._close_plan(ended)
        finally:
            self.backend.close()
        return self._close_records(recorder)

    def known_trials(self, resume: bool = False) -> list[KnownTrial]:
        """Of a grid, the trials that would be taken from earlier studies."""
        if not self.reuse or not isinstance(self.plan, Grid):
            return []
        known = self._find_known(resume)
        return [known[trial.id] for trial in self.plan.trials if trial.id in known]

    def _find_known(self, resume: bool) -> dict[str, KnownTrial]:
        """Earlier trials by id, of the same data: where they lie is no part of an id."""
        created, commit = self._created, study_run.environment_tags().get("commit")
        if resume:  # what it took when it was started, whatever has changed since
            created = read_creation_time(self.store, self.name) or created
            commit = _read_study_file(self.store, self.name).get("commit")
        known = read_known_trials(self.uri, self.name, created, self.resources.workers, commit)
        folders = {trial.data.data_dir for trial in self.plan.representatives()}
        return {k.trial.id: k for k in known if k.trial.data.data_dir in folders}

    def _close_plan(self, plan: Plan) -> None:
        """The plan itself, with what it learned, and which trials it took."""
        if isinstance(plan, ReusingPlan):
            self.taken = list(plan.taken.values())
            plan = plan.plan
        self.plan = plan

    def _close_records(self, recorder: Recorder) -> pa.Table:
        """The study has come to its end: its trials, from MLflow or, where that has not got all of
        them, from the study's own journal."""
        recorder.close(Status.COMPLETED, {k.run_id: k.study for k in self.taken})
        self.unsent, self.refused = recorder.unsent, recorder.refused
        own = to_table(recorder.read_runs())
        for row in own.to_pylist():  # given up: nothing can be made of its checkpoint
            if row["status"] == Status.STOPPED and row["checkpoint"]:
                CheckpointFolder(row["checkpoint"]).remove()
        if not self.unsent and self._describe() and not self.refused:
            return load(self.name, self.uri)
        taken = pa.Table.from_pylist([known.row for known in self.taken], schema=SCHEMA)
        return pa.concat_tables([taken, own]).sort_by("started")

    @contextlib.contextmanager
    def _open_run(self, resume: bool) -> Iterator[Recorder]:
        """The study's own MLflow run, and who writes to it; closed if the study breaks off."""
        if resume and self.uri == store_uri(self.store.runs.expanduser()):
            follow_move(self.store.runs.expanduser())
        run_id = self._find_run() if resume else self._start()
        self._run_id = run_id
        if resume:
            study_run.reopen_study(self.uri, run_id)
        recorder = self._make_recorder(run_id)
        try:
            with record_system_metrics(self.uri, run_id, self.system_metrics):
                yield recorder
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt | StudyHaltedError)
            # The first error is the one to tell; and who interrupts this does not wait for MLflow.
            with contextlib.suppress(UserError, KeyboardInterrupt):
                recorder.close(Status.INTERRUPTED if interrupted else Status.FAILED)
            raise

    def _describe(self, files: Sequence[Path] = (), verdicts: Sequence[Verdict] = ()) -> bool:
        """Writes what MLflow shows of the study as a whole; whether MLflow was there to take it."""
        assert self._run_id is not None
        try:
            describe_study(self.name, self.uri, self._run_id, self.question, files, verdicts)
        except Exception as error:
            self._note_missing(error)
            return False
        return True

    def _note_missing(self, error: Exception) -> None:
        """Remembers that MLflow was not there to take something, or refused it."""
        if is_refusal(error):
            self.refused = self.refused or [f"the study: {first_line(error)}"]
        elif is_outage(error):
            self.unsent = max(1, self.unsent)
        else:
            raise error

    def _make_recorder(self, run_id: str) -> Recorder:
        return Recorder(
            self.uri,
            self.name,
            run_id,
            asdict(self.resources),
            self.plan.varied_fields(),
            draw=figures.trial_figures,
            metric_of=lambda trial: select_task(trial.data).metric,
            folder=self.folder,
        )

    def _start(self) -> str:
        """Opens a new study, which is in its folder and in MLflow; gives its run's id."""
        try:
            with watch_space("runs", self.folder.parent):
                run_id = self._create_run()
                self._write_files()
        except OutOfSpaceError as error:
            with contextlib.suppress(OSError):  # else its name would be taken
                self.folder.rmdir()
            problem = f"runs: no room left in {self.folder.parent}; make some, then start again"
            raise UserError(problem) from error  # and not a study that could be resumed
        return run_id

    def _create_run(self) -> str:
        run_id = study_run.open_study(
            self.uri, self.kind, self.name, self.settings, self.plan.to_json()
        )
        trials = self.plan.representatives()
        is_smaller = any(trial.pruning or trial.layer_drop for trial in trials)
        varied = self.plan.varied_fields()
        study_page.save_view(self.uri, run_id, self.name, varied, is_smaller)
        return run_id

    def _write_files(self) -> None:
        self.folder.mkdir(parents=True)
        content = {
            "kind": self.kind,
            "created": self._created,
            "commit": study_run.environment_tags().get("commit"),
            "question": self.question,
            "settings": self.settings,
        }
        _write_text(self.folder / STUDY_FILE, json.dumps(content, indent=1))

    def _find_run(self) -> str:
        run = find_study(self.uri, self.name)
        if run is None:
            raise UserError(f"resume: study {self.name!r} is not in {self.uri}")
        return str(run.info.run_id)

    def publish(
        self,
        tables: Mapping[str, pa.Table],
        figure_files: Sequence[Path] = (),
        verdicts: Sequence[Verdict] = (),
        text: StudyText | None = None,
    ) -> list[Path]:
        """Keeps tables (as parquet), figures (as PNG and SVG) and verdicts (as ``verdict.json``) in
        the study's folder and its MLflow run, writes the report made of all that is recorded, and
        gives the files.

        Args:
            tables: By name.
            figure_files: The PNG files that :func:`bermo_ray.results.figures.save_figure` wrote.
            verdicts: What the study concluded.
            text: For the report: the question, what was printed, and the command.

        Raises:
            OutOfSpaceError: the disk is full; a resume of the study publishes again.
        """
        assert self._run_id is not None, "run() comes first"
        with watch_space("runs", self.folder):
            files = [kind for file in figure_files for kind in figures.figure_files(file)]
            files += self._write_results(tables, verdicts, text)
            if self.unsent:
                return files  # `sync_study` does the rest, once MLflow is back
            try:
                files += publish_study(self.name, self.uri, self._run_id, self.folder, files)
            except Exception as error:
                self._note_missing(error)
                return files
            self._describe(files, verdicts)
            return files

    def _write_results(
        self, tables: Mapping[str, pa.Table], verdicts: Sequence[Verdict], text: StudyText | None
    ) -> list[Path]:
        files = []
        if verdicts:
            files.append(_write_text(self.folder / VERDICT_FILE, dump_verdicts(verdicts)))
        if text is not None:
            files.append(_write_text(self.folder / STUDY_TEXT_FILE, text.to_json()))
        for name, table in tables.items():
            files.append(self.folder / f"{name}.parquet")
            with _replacing(files[-1]) as partial_file:
                pq.write_table(table, partial_file)
        return files

    def register_best(self, name: str) -> tuple[str, str]:
        """Makes the study's best trial (:func:`pick_best_trial`) a version of a registered model,
        with its stock checkpoint; gives the version's number, and which trial it is and why.

        Raises:
            UserError: there is no best trial, its checkpoint is gone, or MLflow refuses the name.
        """
        from bermo_ray.export import export_trial

        row, rule = pick_best_trial(load(self.name, self.uri))
        outcome = f"{row['remaining']:.1%} of the weights, {row['metric_reported']:.4f} reported"
        about = f"trial {row['trial_id'][:6]} of {row['study']} ({outcome}): {rule}"
        with tempfile.TemporaryDirectory(prefix="bermo-") as scratch:
            folder = Path(scratch) / "model"
            export_trial(row["run_id"], folder, self.uri)
            version = register_model(self.uri, row["run_id"], name, folder, about)
        return version, about


def _write_text(file: Path, text: str) -> Path:
    with _replacing(file) as partial_file:
        partial_file.write_text(text)
    return file


@contextlib.contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Gives another name to write a file under, so that none is left half-written."""
    partial_file = file.with_suffix(".partial")
    try:
        yield partial_file
        partial_file.replace(file)
    finally:
        partial_file.unlink(missing_ok=True)


def in_plan_order(table: pa.Table, plan: Plan) -> pa.Table:
    """The rows of a grid as it lists its trials, for they start and end in any order; of a search
    as they are."""
    if not isinstance(plan, Grid):
        return table
    ids = pa.array([trial.id for trial in plan.trials])
    return table.take(pc.sort_indices(pc.index_in(table["trial_id"], ids)))


def _find_gpu_problems(resources: Resources) -> list[str]:
    share = resources.gpus_per_worker
    if not 0 < share <= 1:
        return [f"gpus_per_worker: got {share:g}, expected 0 < gpus_per_worker <= 1"]
    if share < 1 and not resources.gpus:
        return [f"gpus_per_worker: got {share:g} without `gpus`"]
    if share < 1 and resources.workers > 1:
        return [
            f"gpus_per_worker: got {share:g} with {resources.workers} workers, each of which needs "
            "a GPU of its own (NCCL); use `workers` 1"
        ]
    return []


def find_problems(name: str, resources: Resources, store: Store, resume: bool) -> list[str]:
    """What is wrong with a study whatever its plan, one line each."""
    problems = [
        f"{field}: got {value}, expected >= 1"
        for field in ("workers", "cpus_per_worker")
        if (value := getattr(resources, field)) < 1
    ]
    problems += _find_gpu_problems(resources)
    if not re.fullmatch(r"[\w.-]+", name):
        problems.append(f"name: got {name!r}, expected letters, digits, and . _ -")
    folder = store.folder(name).absolute()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        problems.append(f"runs: can't write in {nearest}")
    checkpoints = Path(store.checkpoints) / name
    if HIDDEN in hide_password(store.checkpoints):
        problems.append(
            f"storage: the password in {store.checkpoints} would be in Ray's files; leave it out "
            "and set it on every node, for s3 as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not resume and folder.exists():
        problems.append(f"name: a study {name!r} exists; `resume` it or rename")
    elif not resume and "://" not in store.checkpoints and checkpoints.exists():
        problems.append(f"name: {checkpoints} holds another study's checkpoints; remove or rename")
    if not store.uri.startswith(SQLITE):
        try:
            connect(store.uri)
        except UserError as error:
            problems += error.problems
    return problems


def read_creation_time(store: Store, study: str) -> float | None:
    """When a study was started, in seconds; None where there is none of that name."""
    created = _read_study_file(store, study).get("created")
    return None if created is None else float(created)


def _read_study_file(store: Store, study: str) -> dict[str, Any]:
    """What is kept of a study since it was started; empty where there is none of that name."""
    file = store.folder(study) / STUDY_FILE
    return dict(json.loads(file.read_text())) if file.is_file() else {}
