"""Where a trial's newest checkpoint lies: one folder, or one prefix of a bucket, per trial."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyarrow import fs

from bermo_ray.space import watch_space
from bermo_ray.training.checkpoint import PROGRESS_FILE

SaveCheckpoint = Callable[[Path], None]  # writes a checkpoint into the empty folder it is given


class CheckpointFolder:
    """Holds one checkpoint; a new one takes the place of the old one.

    At any moment, whoever is killed, one of them is complete:

    1. The new one is written beside the old one, as ``LOCATION.new``. ``progress.json`` comes last
       and makes it complete.
    2. The old one is removed, and the new one moved to its place.

    A complete ``LOCATION.new`` is the newer one; :meth:`settle` moves it, where a process was
    killed before it could. What is removed loses its ``progress.json`` first. On a local disk the
    new one is synced before that, so that this holds when the machine is lost, too.

    Args:
        location: A folder, or a URI that :mod:`pyarrow.fs` knows; all workers of a trial, wherever
            they run, must see it.
    """

    def __init__(self, location: str | Path) -> None:
        self.location = str(location)
        if "://" in self.location:
            self._files, self._path = fs.FileSystem.from_uri(self.location)
        else:
            self._files, self._path = fs.LocalFileSystem(), str(Path(self.location).absolute())
        self._is_local = isinstance(self._files, fs.LocalFileSystem)
        self._copy: tempfile.TemporaryDirectory[str] | None = None  # of one that lies in a bucket

    @property
    def _new(self) -> str:
        return f"{self._path}.new"

    def find(self) -> Path | None:
        """The newest complete checkpoint, copied here if it lies in a bucket; None without one."""
        path = next((p for p in (self._new, self._path) if self._is_complete(p)), None)
        if path is None or self._is_local:
            return Path(path) if path else None
        self._copy = tempfile.TemporaryDirectory(prefix="bermo-resume-")
        fs.copy_files(path, self._copy.name, self._files, fs.LocalFileSystem())
        return Path(self._copy.name)

    def write(self, save: SaveCheckpoint) -> None:
        """Puts a new checkpoint in the place of the old one.

        Raises:
            OutOfSpaceError: It does not fit; the old one is still there.
        """
        with watch_space("storage", self.location):
            self.settle()
            try:
                self._remove(self._new)
                self._fill(save)
            except Exception:
                self._remove(self._new)  # it takes the room that others need
                raise
            self._move()

    def settle(self) -> None:
        """Moves a new one that is complete to its place, so that it lies where records say."""
        if self._is_complete(self._new):
            self._move()

    def remove(self) -> None:
        """Removes what is there, of a trial that will not go on."""
        for path in (self._new, self._path):
            self._remove(path)

    def _is_complete(self, path: str) -> bool:
        info = self._files.get_file_info(f"{path}/{PROGRESS_FILE}")
        return bool(info.type == fs.FileType.File)

    def _fill(self, save: SaveCheckpoint) -> None:
        self._files.create_dir(self._new)
        if self._is_local:
            save(Path(self._new))
            _sync(Path(self._new))
            return
        with tempfile.TemporaryDirectory(prefix="bermo-checkpoint-") as folder:
            save(Path(folder))
            self._copy_all(fs.LocalFileSystem(), folder, self._new)

    def _copy_all(self, files: fs.FileSystem, source: str, target: str) -> None:
        """Copies a checkpoint to the storage, what makes it complete last."""
        infos = files.get_file_info(fs.FileSelector(source))
        for info in sorted(infos, key=lambda i: i.base_name == PROGRESS_FILE):
            fs.copy_files(info.path, f"{target}/{info.base_name}", files, self._files)

    def _move(self) -> None:
        """Puts the new one in the place of the old one."""
        self._remove(self._path)
        if self._is_local:
            self._files.move(self._new, self._path)
            return
        self._files.create_dir(self._path)
        self._copy_all(self._files, self._new, self._path)  # a bucket can't rename
        self._remove(self._new)

    def _remove(self, path: str) -> None:
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            return
        if self._is_complete(path):
            self._files.delete_file(f"{path}/{PROGRESS_FILE}")
        self._files.delete_dir(path)


def _sync(folder: Path) -> None:
    """Returns when the files of a folder are on its disk, and not only on their way."""
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
