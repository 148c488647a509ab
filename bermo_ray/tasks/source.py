"""Where rows come from: the hub, parquet in the hub's columns, or a task's original files.

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

from bermo_ray.errors import UserError
from bermo_ray.trial import Data

DATA_VARIABLE = "BERMO_DATA"  # stands in for `--data-dir`
Reader = Callable[[Path, str], pa.Table]  # (file, part) -> rows


@dataclass(frozen=True)
class Rows:
    """One part of a task's data, before it is read."""

    where: str  # its file, or its name on the hub, for messages
    stamp: Callable[[], bytes]  # changes whenever the rows do
    read: Callable[[], pa.Table]
    size: int = 0  # bytes of its encoding, a guess


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
            found = datasets.load_dataset("parquet", data_files={part: file}, split=part)
        else:
            found = datasets.load_dataset(self.path, self.config, split=part)
        return found.data.table, found._fingerprint


@dataclass(frozen=True)
class Source:
    """A task's places.

    ``files(part)`` names every form of a part below the data directory, and who reads it. ``hub``
    is None for a task that is not there.
    """

    files: Callable[[str], Mapping[str, Reader]]
    hub: Hub | None = None

    def rows(self, data: Data, part: str) -> Rows:
        """Where the part lies.

        Raises:
            UserError: it is not there, or there in two forms.
        """
        base = folder(data)
        if base is None:
            return self._on_hub(data.task, part)
        if problem := self.problem(data, part):
            raise UserError(problem)
        (name, read), *_ = self._there(base, part)
        file = base / name
        guess = 10 * file.stat().st_size
        return Rows(str(file), lambda: _digest(file), lambda: read(file, part), guess)

    def problem(self, data: Data, part: str) -> str | None:
        """What keeps the part from being read, in one line, without reading it."""
        base = folder(data)
        if base is None:
            return None
        if not base.is_dir():
            return f"task {data.task}: no data directory {base}; give --data-dir or set {DATA_VARIABLE}"  # noqa: E501
        names = list(self.files(part))
        found = [name for name, _ in self._there(base, part)]
        if not found:
            other = f" (nor {', '.join(names[1:])})" if len(names) > 1 else ""
            return f"task {data.task}: no file {base / names[0]}{other}"
        if len(found) > 1:
            return f"task {data.task}: {base} holds {part} twice: {', '.join(found)}; keep one"
        return None

    def _there(self, base: Path, part: str) -> list[tuple[str, Reader]]:
        return [(n, read) for n, read in self.files(part).items() if (base / n).is_file()]

    def _on_hub(self, task: str, part: str) -> Rows:
        hint = f"give --data-dir or set {DATA_VARIABLE}"
        if self.hub is None:
            raise UserError(f"task {task}: it is not on the hub; {hint}")
        hub = self.hub

        def fetch() -> "tuple[pa.Table, str]":
            try:
                return hub.load(part)
            except Exception as error:  # the hub client raises many kinds
                why = (str(error).strip().splitlines() or [""])[0]
                raise UserError(
                    f"task {task}: the hub did not give {hub.path} "
                    f"({type(error).__name__}: {why}); {hint}"
                ) from error

        where = f"{hub.path} {hub.config or ''} {part} (hub)".replace("  ", " ")
        return Rows(where, lambda: fetch()[1].encode(), lambda: fetch()[0])


def folder(data: Data) -> Path | None:
    """The data directory: the trial's own word, then BERMO_DATA, else None (the hub)."""
    place = data.data_dir or os.environ.get(DATA_VARIABLE)
    return Path(place).expanduser() if place else None


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def parquet(file: Path, part: str = "") -> pa.Table:
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


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file, without their ends.

    Raises:
        UserError: a line that is not UTF-8.
    """
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode().rstrip("\r\n")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{file}: line {number}: byte {line[error.start]:#04x} is not UTF-8; "
                    "convert the file"
                ) from None
