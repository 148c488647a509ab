"""A file of JSON, one entry per line, that only ever grows: killed while it is written, or on a
full disk, it loses its last line at most."""

import json
import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any


class JsonLines:
    """Entries in a file, in their order. Whoever appends must be the only one; anybody may read
    meanwhile."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry, which is on disk when this returns; one that does not fit is not there. A
        last line that was cut off is removed first: the entry would begin in its middle."""
        line = json.dumps(entry).encode() + b"\n"
        # Unbuffered: a buffer would write the rest of what failed as the file is closed.
        with self.file.open("a+b", buffering=0) as stream:
            size = _remove_fragment(stream)
            try:
                _write_all(stream, line)
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(size)
                raise

    def read(self) -> list[dict[str, Any]]:
        """All entries; none without a file. A last line that is not complete is passed over, and
        left as it is: another process may be writing it."""
        if not self.file.is_file():
            return []
        complete, _, _ = self.file.read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in complete.splitlines()]


def _remove_fragment(stream: FileIO) -> int:
    """Cuts a file off behind its last complete line; gives its size."""
    size = stream.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    stream.seek(size - 1)
    if stream.read(1) == b"\n":
        return size
    stream.seek(0)
    return stream.truncate(stream.readall().rfind(b"\n") + 1)


def _write_all(stream: FileIO, content: bytes) -> None:
    """Where little room is left, a single call writes only what fits, and reports no error."""
    written = 0
    while written < len(content):
        written += stream.write(content[written:])
