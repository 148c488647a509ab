"""What a study has to record, on disk beside it before MLflow hears of it.

So a store that is away holds up neither the trials nor the driver, and a driver that is killed
meanwhile loses nothing: whoever opens the journal next sends what is not sent yet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bermo_ray.json_lines import JsonLines
from bermo_ray.space import watch_space

RECORDS_FILE = "records.jsonl"  # in a study's folder
_SENT_FILE = "records.sent"  # how many of them MLflow has

Event = dict[str, Any]


class Journal:
    """The records of a study in their order, and how many of them are sent.

    Args:
        folder: The study's.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / RECORDS_FILE
        self._lines, self._sent_file = JsonLines(self.file), folder / _SENT_FILE

    def append(self, event: Mapping[str, Any]) -> None:
        """Adds a record.

        Raises:
            OutOfSpaceError: It does not fit.
        """
        with watch_space("runs", self.file.parent):
            self._lines.append(event)

    def read(self) -> list[Event]:
        """All records."""
        return self._lines.read()

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
