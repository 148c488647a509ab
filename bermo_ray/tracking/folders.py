"""Folders on this machine or in a bucket: what they hold, which is in which, removing one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from bermo_ray.errors import UserError


def open_folder(folder: str) -> tuple[Any, str]:
    """The file system of a folder, given as a path or a URI, and the folder's path in it.

    Raises:
        UserError: it can't be reached.
    """
    if "://" not in folder:
        return fs.LocalFileSystem(), str(Path(folder).expanduser().absolute())
    try:
        filesystem, path = fs.FileSystem.from_uri(folder)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreachable(folder, error) from error
    return filesystem, path


def list_files(folder: str) -> dict[str, int]:
    """The bytes of every file in a folder, and in the folders in it, by its path within the folder;
    none where there is no such folder.

    Raises:
        UserError: it can't be read.
    """
    filesystem, path = open_folder(folder)
    selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
    try:
        infos = filesystem.get_file_info(selector)
    except (OSError, pa.ArrowException) as error:
        raise _unreachable(folder, error) from error
    prefix = f"{path.rstrip('/')}/"
    files = (info for info in infos if info.type == fs.FileType.File)
    return {info.path.removeprefix(prefix): info.size for info in files}


def read_file(folder: str, name: str) -> bytes | None:
    """The content of a file in a folder; None where it is not there, or can't be reached."""
    try:
        filesystem, path = open_folder(folder)
        with filesystem.open_input_stream(f"{path}/{name}") as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException, UserError):
        return None


def remove_folder(folder: str) -> None:
    """Removes a folder with all that is in it.

    Raises:
        UserError: it can't be removed.
    """
    filesystem, path = open_folder(folder)
    try:
        filesystem.delete_dir(path)
    except (OSError, pa.ArrowException) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{folder} can't be removed: {why}") from error


def path_within(folder: str, outer: str) -> str | None:
    """A folder's path within another one; None where it is not in it, or is that one itself. Links
    and dots in the paths of this machine are followed; in a bucket they are not allowed.

    >>> path_within("s3://b/runs/s/1", "s3://b/runs"), path_within("s3://b/runs/../t", "s3://b/runs")
    ('s/1', None)
    """
    inner, outside = _normalize(folder), _normalize(outer)
    if outside not in parents(inner):
        return None
    path = inner.removeprefix(f"{outside}/")
    return None if {"", ".", ".."} & set(path.split("/")) else path


def parents(path: str) -> list[str]:
    """The folders that a path lies in, the innermost first.

    >>> parents("study/trial/file")
    ['study/trial', 'study']
    """
    names = path.split("/")
    return ["/".join(names[:end]) for end in range(len(names) - 1, 0, -1)]


class FolderSet:
    """Folders, to ask which others share files with one of them."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = {_normalize(folder) for folder in folders}
        self._above = {parent for folder in self._folders for parent in parents(folder)}

    def touches(self, folder: str) -> bool:
        """Whether the folder is one of them, is in one, or has one in it."""
        path = _normalize(folder)
        return path in self._folders | self._above or any(p in self._folders for p in parents(path))


def _normalize(folder: str) -> str:
    """A folder by the one name that it has, as far as that can be seen."""
    if "://" in folder and not folder.startswith("file://"):
        return folder.rstrip("/")
    return str(Path(open_folder(folder)[1]).resolve())


def _unreachable(folder: str, error: Exception) -> UserError:
    return UserError(f"{folder} can't be read: {str(error).splitlines()[0]}")
