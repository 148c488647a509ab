"""Records a study's trials: at once beside the study, and from there, behind its back, in MLflow.

The driver alone writes; workers only report.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.record import Draw, Report, Status, to_mlflow
from bermo_ray.tracking import store
from bermo_ray.tracking.journal import Event, Journal, attempt_of
from bermo_ray.tracking.reader import StoredRun
from bermo_ray.tracking.trial_writer import TrialWriter
from bermo_ray.trial import Trial

OUTAGE_SECONDS = 30.0  # how long a closing study waits for a store that is away
_LAST_CALL_SECONDS = 30.0  # how long a call that is under way then may take
_LONGEST_PAUSE = 10.0  # seconds between two tries at a store that is away


class Recorder:
    """A :class:`bermo_ray.record.Listener` that records trials.

    An event is in the journal when a call returns. A thread of its own sends it to MLflow, in
    order: a store that is away, or slow, holds nobody up, and what it missed is sent once it is
    back, by this process or by the next that opens the journal.

    Args:
        uri: MLflow's store.
        study: Name of the study.
        study_run: Id of the study's own run, the parent of the trials'.
        resources: As for :class:`TrialWriter`,
        varied: likewise,
        draw: likewise.
        metric_of: Names the metric of a trial's task.
        folder: The study's, where the journal lies; None: there is none.
    """

    def __init__(
        self,
        uri: str,
        study: str,
        study_run: str,
        resources: Mapping[str, Any] | None = None,
        varied: Collection[str] | None = None,
        draw: Draw | None = None,
        metric_of: Callable[[Trial], str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.metric_of = metric_of or (lambda trial: "")
        self.outage = ""  # what came of the last call that did not go through
        self._refusals: dict[str, str] = {}  # of MLflow, and why, by attempt
        self._writer = TrialWriter(uri, study, study_run, resources, varied, draw)
        self._journal = Journal(folder) if folder else None
        self._pending: deque[Event] = deque()
        self._sent = 0
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._error: Exception | None = None
        self._changed = threading.Condition()  # guards _pending and _error
        self._hurry = threading.Event()  # somebody waits for the end
        self._is_closed = False
        if self._journal is not None:
            fields = None if varied is None else sorted(varied)
            about = {"run": study_run, "resources": dict(resources or {}), "varied": fields}
            self._take_up(self._journal, about)
        self.unsent_before = len(self._pending)  # by earlier processes
        self._thread = threading.Thread(target=self._send_all, name="bermo-recorder", daemon=True)
        self._thread.start()

    @classmethod
    def reopen(cls, uri: str, study: str, folder: Path, draw: Draw | None = None) -> "Recorder":
        """The recorder of a study as its journal describes it, to send what is not sent yet.

        Raises:
            UserError: there is no journal, or another process sends what is in it.
        """
        events = Journal(folder).read()
        if not events:
            raise UserError(f"study: no records of {study!r} in {folder}")
        about = events[0]["study"]
        run, resources, varied = about["run"], about["resources"], about["varied"]
        return cls(uri, study, run, resources, varied, draw, folder=folder)

    def _take_up(self, journal: Journal, about: Mapping[str, Any]) -> None:
        """Takes up what an earlier process has recorded, as the only one to send it."""
        journal.acquire()
        try:
            self._open_journal(journal, about)
        except BaseException:
            journal.release()
            raise

    def _open_journal(self, journal: Journal, about: Mapping[str, Any]) -> None:
        """Reads a journal; a new one begins with the study."""
        events = journal.read()
        if not events:
            journal.append({"time": _now(), "study": about})
            events = journal.read()
        self._sent, self._refusals = min(journal.sent, len(events)), journal.read_refusals()
        for event in events:
            self._note(event)
        for event in events[: self._sent]:
            self._writer.note(event)
        self._pending.extend(events[self._sent :])

    def _note(self, event: Event) -> None:
        if "start" in event:
            self._started.add(event["start"])
        elif "interrupt" in event:
            self._started.discard(event["interrupt"])
        elif "report" in event and Status(event["reports"][-1].get("status", "running")).ended:
            self._ended.add(event["report"])

    def on_open(self, most_trials: int, concurrent: int, where: str) -> None:
        """The study's own run is open already."""

    def on_start(self, attempt: str, trial: Trial) -> None:
        """A child run for a new trial; an old one that goes on is running again."""
        about = {"trial": json.loads(trial.to_json()), "metric_name": self.metric_of(trial)}
        self._record({"start": attempt, **about})

    def on_known(self, attempt: str, trial: Trial, report: Report) -> None:
        """It is recorded already."""

    def on_report(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        """The reports' figures at their steps; after a resume, those that were missed too."""
        values = [report.to_dict() for report in reports]
        self._record({"report": attempt, "reports": values, "checkpoint": checkpoint})

    def on_progress(self, attempt: str, share: float) -> None:
        pass

    def on_refresh(self) -> None:
        """Nothing is drawn here."""

    def on_close(self) -> None:
        """Trials that were cut off are marked so; a resumed study takes them up again."""
        for attempt in sorted(self._started - self._ended):
            self._record({"interrupt": attempt})

    def close(self, status: Status, taken: Mapping[str, str] | None = None) -> None:
        """Records how the study ended and which trials it took from others, by their runs; waits a
        while until MLflow has all of it. :attr:`unsent` then says how much it has not. Nothing is
        sent after that."""
        try:
            self.on_close()
            if taken:
                self._record({"taken": dict(taken)})
            self._record({"close": str(status)})
            self.wait()
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends the thread that sends: whoever sends the rest must be the only one."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._hurry.set()
        self._thread.join(_LAST_CALL_SECONDS)

    def wait(self) -> None:
        """Waits until everything is sent, or until nothing could be for :data:`OUTAGE_SECONDS`.

        Raises:
            Exception: what broke the thread that sends.
        """
        self._hurry.set()
        with self._changed:
            left, deadline = len(self._pending), time.monotonic() + OUTAGE_SECONDS
            while self._pending and not self._error and time.monotonic() < deadline:
                self._changed.wait(max(0.0, deadline - time.monotonic()))
                if len(self._pending) < left:
                    left, deadline = len(self._pending), time.monotonic() + OUTAGE_SECONDS
        self._hurry.clear()
        self._raise_error()

    @property
    def unsent(self) -> int:
        """How many records MLflow has not got."""
        return len(self._pending)

    @property
    def refused(self) -> list[str]:
        """What MLflow will never take, a line for each trial: its records are in the journal alone.
        What it says of the first of them stands for all."""
        return [f"{self._name_of(attempt)}: {why}" for attempt, why in [*self._refusals.items()]]

    def _name_of(self, attempt: str) -> str:
        trial = self._writer.trials.get(attempt)
        return f"trial {trial.id[:6]}" if trial else "the study"

    def read_runs(self) -> list[StoredRun]:
        """The study's own trials as the journal has them, whatever MLflow has."""
        runs: dict[str, StoredRun] = {}
        for event in self._journal.read() if self._journal else []:
            if "start" in event:
                attempt = event["start"]
                run_id = self._writer.run_ids.get(attempt, f"unsent-{attempt}")
                self._writer.note(event)
                tags = self._writer.describe(attempt, event["metric_name"])
                runs.setdefault(attempt, StoredRun(run_id, event["time"], None)).tags |= tags
            elif "report" in event:
                _add_report(runs[event["report"]], event)
            elif "interrupt" in event:
                run = runs[event["interrupt"]]
                run.tags["bermo.status"], run.ended = str(Status.INTERRUPTED), event["time"]
        return list(runs.values())

    def _record(self, event: Event) -> None:
        self._raise_error()
        event = {"time": _now(), **event}
        if self._journal is not None:
            self._journal.append(event)
        self._note(event)
        with self._changed:
            self._pending.append(event)
            self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _send_all(self) -> None:
        """The thread's life; whoever comes next may send after it, and not before."""
        try:
            self._send_until_closed()
        finally:
            if self._journal is not None:
                self._journal.release()

    def _send_until_closed(self) -> None:
        """One event after the other, each until it is sent."""
        pause = 0.5
        while True:
            with self._changed:
                while not self._pending and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
                event = self._pending[0]
            try:
                self._send(event)
            except Exception as error:
                if not store.is_outage(error):
                    with self._changed:
                        self._error = error
                        self._changed.notify_all()
                    return
                self.outage = store.first_line(error)
                self._hurry.wait(pause)  # a study that waits for its end is not kept waiting
                time.sleep(0.2)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause, self._sent = 0.5, self._sent + 1
            if self._journal is not None:
                self._journal.sent = self._sent
            with self._changed:
                self._pending.popleft()
                self._changed.notify_all()

    def _send(self, event: Event) -> None:
        try:
            self._writer.send(event)
        except Exception as error:
            if not store.is_refusal(error):
                raise
            self._note_refusal(attempt_of(event), store.first_line(error))

    def _note_refusal(self, attempt: str, why: str) -> None:
        """Of a trial once: what it is refused first, it is refused from then on."""
        if attempt not in self._refusals:
            if self._journal is not None:
                self._journal.add_refusal(attempt, why)
            self._refusals[attempt] = why


def _add_report(run: StoredRun, event: Event) -> None:
    """Lays the reports of an event over what is known of a run."""
    for values in event["reports"]:
        metrics, tags = to_mlflow(Report.from_dict(values))
        run.metrics |= metrics
        run.tags |= tags
    run.tags |= {"bermo.checkpoint": event["checkpoint"]} if event["checkpoint"] else {}
    if Status(run.tags["bermo.status"]).ended:
        run.ended = event["time"]


def _now() -> int:
    return int(time.time() * 1000)
