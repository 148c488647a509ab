"""Where rows come from: the hub, parquet with the hub's columns, or a task's original files.

What was asked for is what is read. A folder without the file is an error, never a reason to look
elsewhere; so are two forms of one split in a folder.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bermo_ray.errors import UserError, listed
from bermo_ray.trial import Data

DATA_VARIABLE = "BERMO_DATA"  # stands in for a trial's data_dir
Reader = Callable[[Path, str], pa.Table]  # (file, part) -> rows
ENCODED_BYTES = 10  # of an encoding, per byte of its source


class MissingPartError(UserError):
    """A part of a task's data that can't be had: no file, no rows, or the hub does not give it."""


@dataclass(frozen=True)
class Rows:
    """One part of a task's data, before it is read."""

    where: str  # its file, or its name on the hub, for messages
    stamp: Callable[[], bytes]  # changes whenever the rows do
    read: Callable[[], pa.Table]
    size: int = 0  # bytes of its encoding, roughly


@dataclass(frozen=True)
class Hub:
    """Where `datasets` finds a task. ``converted``: the hub's own parquet copy of a repository
    whose loading script `datasets` no longer runs."""

    path: str
    config: str | None = None
    converted: bool = False

    def load(self, part: str) -> "tuple[pa.Table, str]":
        """The rows and their fingerprint."""
        import datasets  # slow to import, and only a trial on the hub's data needs it

        if self.converted:
            file = f"hf://datasets/{self.path}@~parquet/{self.config}/{part}/*.parquet"
            rows = datasets.load_dataset("parquet", data_files={part: file}, split=part)
        else:
            rows = datasets.load_dataset(self.path, self.config, split=part)
        return rows.data.table, rows._fingerprint


@dataclass(frozen=True)
class Source:
    """Where a task's parts may lie.

    ``files(part)`` names every form of a part below the data directory, and what reads it. ``hub``
    is None for a task that is not there.
    """

    files: Callable[[str], Mapping[str, Reader]]
    hub: Hub | None = None

    def open(self, data: Data, part: str) -> Rows:
        """Where the part lies, unread.

        Raises:
            MissingPartError: it is not there.
            UserError: it is there in two forms, or there is no data directory.
        """
        folder = data_folder(data)
        if folder is None:
            return self._open_on_hub(data.task, part)
        name, read = self._find_file(folder, data.task, part)
        file = folder / name
        size = ENCODED_BYTES * file.stat().st_size
        return Rows(str(file), lambda: _digest(file), lambda: read(file, part), size)

    def _find_file(self, folder: Path, task: str, part: str) -> tuple[str, Reader]:
        """The one form of the part that is there."""
        if not folder.is_dir():
            raise UserError(
                f"task {task}: no data directory {folder}; set `data_dir` or {DATA_VARIABLE}"
            )
        files = self.files(part)
        present = [name for name in files if (folder / name).is_file()]
        if len(present) > 1:
            raise UserError(
                f"task {task}: {folder} holds {part} twice: {listed(present)}; keep one"
            )
        if not present:
            first, *others = files
            nor = f" (nor {listed(others)})" if others else ""
            raise MissingPartError(f"task {task}: no file {folder / first}{nor}")
        return present[0], files[present[0]]

    def _open_on_hub(self, task: str, part: str) -> Rows:
        hint = f"set `data_dir` or {DATA_VARIABLE}"
        if self.hub is None:
            raise MissingPartError(f"task {task}: it is not on the hub; {hint}")
        hub = self.hub

        def fetch() -> "tuple[pa.Table, str]":
            try:
                return hub.load(part)
            except Exception as error:  # the hub client raises many kinds
                why = (str(error).strip().splitlines() or [""])[0]
                raise MissingPartError(
                    f"task {task}: the hub did not give {hub.path} "
                    f"({type(error).__name__}: {why}); {hint}"
                ) from error

        where = f"{hub.path} {hub.config or ''} {part} (hub)".replace("  ", " ")
        return Rows(where, lambda: fetch()[1].encode(), lambda: fetch()[0])


def data_folder(data: Data) -> Path | None:
    """The data directory: the trial's ``data_dir``, then BERMO_DATA, else None (the hub)."""
    path = data.data_dir or os.environ.get(DATA_VARIABLE)
    return Path(path).expanduser() if path else None


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def read_parquet(file: Path, part: str = "") -> pa.Table:
    """A parquet file's rows."""
    try:
        return pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{file}: can't be read as parquet: {str(error).splitlines()[0]}") from None


def class_names(rows: pa.Table, column: str) -> tuple[str, ...]:
    """Names of the classes that `datasets` wrote into a file, in order; () where it did not."""
    kept = (rows.schema.metadata or {}).get(b"huggingface")
    if not kept:
        return ()
    feature = json.loads(kept).get("info", {}).get("features", {}).get(column, {})
    feature = feature.get("feature", feature) if isinstance(feature, dict) else {}
    return tuple(feature.get("names") or ()) if isinstance(feature, dict) else ()


def read_lines(file: Path, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file, without their ends unless they are to be kept.

    Raises:
        UserError: a line that is not UTF-8.
    """
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode()
                text = text if keep_ends else text.rstrip("\r\n")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{file}: line {number}: byte {line[error.start]:#04x} is not UTF-8; "
                    "convert the file"
                ) from None
