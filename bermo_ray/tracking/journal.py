"""What a study has to record, on disk beside it before MLflow hears of it.

So a store that is away holds up neither the trials nor the driver, and a driver that is killed
meanwhile loses nothing: whoever opens the journal next sends what is not sent yet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bermo_ray.errors import UserError
from bermo_ray.json_lines import JsonLines
from bermo_ray.space import watch_space

RECORDS_FILE = "records.jsonl"  # in a study's folder
_SENT_FILE = "records.sent"  # how many of them MLflow has
_REFUSED_FILE = "records.refused"  # what MLflow did not take, one line of JSON for each trial
_LOCK_FILE = "records.lock"  # held by the process that sends them

Event = dict[str, Any]


def attempt_of(event: Event) -> str:
    """The trial that a record is of; empty where it is of the study itself."""
    return next((event[key] for key in ("start", "report", "interrupt") if key in event), "")


class Journal:
    """The records of a study in their order, and how many of them are sent.

    Args:
        folder: The study's.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / RECORDS_FILE
        self._lines, self._sent_file = JsonLines(self.file), folder / _SENT_FILE
        self._refusals = JsonLines(folder / _REFUSED_FILE)
        # Taken by the thread that opens a recorder, given back by the one that sends.
        self._lock = FileLock(folder / _LOCK_FILE, thread_local=False)
        # Checkpoints below it are noted by their path in it, for it may be moved as a whole.
        self._runs = f"{folder.absolute().parent}/"

    def acquire(self) -> None:
        """Keeps others from sending: two at once would each make a run of the same trial.

        Raises:
            UserError: somebody else does already.
            OutOfSpaceError: There is no room for the lock's file.
        """
        try:
            with watch_space("runs", self.file.parent):
                self._lock.acquire(blocking=False)
        except Timeout as error:
            name = self.file.parent.name
            raise UserError(
                f"another process runs study {name!r} or sends its records; wait for its end, then "
                "try again"
            ) from error

    def release(self) -> None:
        """Lets others send."""
        self._lock.release()

    def append(self, event: Mapping[str, Any]) -> None:
        """Adds a record.

        Raises:
            OutOfSpaceError: It does not fit.
        """
        path = event.get("checkpoint", "")
        if path.startswith(self._runs):
            event = {**event, "checkpoint": path.removeprefix(self._runs)}
        with watch_space("runs", self.file.parent):
            self._lines.append(event)

    def read(self) -> list[Event]:
        """All records, with checkpoints where they are now."""
        events = self._lines.read()
        for event in events:
            path = event.get("checkpoint", "")
            if path and "://" not in path and not path.startswith("/"):
                event["checkpoint"] = self._runs + path
        return events

    @property
    def sent(self) -> int:
        """How many of the records are sent."""
        return int(self._sent_file.read_text()) if self._sent_file.is_file() else 0

    @sent.setter
    def sent(self, count: int) -> None:
        # Lost, or not written for want of room: records are sent again, which changes nothing.
        partial_file = self._sent_file.with_suffix(".partial")
        try:
            partial_file.write_text(str(count))
            partial_file.replace(self._sent_file)
        except OSError:
            partial_file.unlink(missing_ok=True)

    def add_refusal(self, attempt: str, why: str) -> None:
        """Notes that MLflow does not take the records of a trial, or of the study (empty)."""
        self._refusals.append({"attempt": attempt, "why": why})

    def read_refusals(self) -> dict[str, str]:
        """What MLflow did not take, and why, by attempt."""
        return {entry["attempt"]: entry["why"] for entry in self._refusals.read()}
