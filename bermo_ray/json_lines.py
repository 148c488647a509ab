"""A file of JSON, one entry per line, that only ever grows: killed while it is written, or on a
full disk, it loses its last line at most."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class JsonLines:
    """Entries in a file, in their order."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry, which is on disk when this returns; one that does not fit is not there."""
        line = json.dumps(entry).encode() + b"\n"
        with self.file.open("ab") as stream:
            size = stream.tell()
            try:
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                os.truncate(self.file, size)
                raise

    def read(self) -> list[dict[str, Any]]:
        """All entries; none without a file. A last line that was cut off is removed, so that the
        next entry does not begin in its middle."""
        if not self.file.is_file():
            return []
        content = self.file.read_bytes()
        complete, newline, rest = content.rpartition(b"\n")
        if rest:
            os.truncate(self.file, len(complete) + len(newline))
        return [json.loads(line) for line in complete.splitlines()]
