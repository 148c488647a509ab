"""Files that are made once per node and then read by all of its trials and workers.

Each is named by everything that decides its content, so that none is ever out of date.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from bermo_ray.space import watch_space

T = TypeVar("T")
CACHE_VARIABLE = "BERMO_CACHE"  # a folder, or "off"
LIMIT_VARIABLE = "BERMO_CACHE_GB"  # the oldest files go when a folder holds more


def find_folder(kind: str) -> Path | None:
    """Where files of that kind are kept; None where the user turned the cache off."""
    asked = os.environ.get(CACHE_VARIABLE, "~/.cache/bermo_ray")
    return None if asked == "off" else Path(asked).expanduser() / kind


def byte_limit() -> int:
    """The most bytes that a folder may hold."""
    return int(float(os.environ.get(LIMIT_VARIABLE, "20")) * 1e9)


def read_or_make(
    file: Path, size: int, write: Callable[[Path], None], read: Callable[[Path], T]
) -> T:
    """What ``read`` gives of the file, made by ``write`` (about ``size`` bytes) where it is not
    there yet.

    Several processes may want the same one: one writes, the others wait for it. One that dies while
    writing leaves only a partial file, which the next removes.

    Raises:
        OutOfSpaceError: It does not fit on the disk.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        if not file.is_file():
            _make_room(file.parent, file.suffix, size)
            partial_file = file.with_suffix(".partial")
            _write(partial_file, write)
            partial_file.replace(file)
        os.utime(file)  # the least recently used goes first
        return read(file)  # mapped under the lock: nobody removes it in between


def _write(partial_file: Path, write: Callable[[Path], None]) -> None:
    advice = 'set it to another folder, or to "off"'
    try:
        with watch_space(CACHE_VARIABLE, partial_file.parent, advice):
            write(partial_file)
    except BaseException:
        partial_file.unlink(missing_ok=True)  # it takes the room that others need
        raise


def _make_room(folder: Path, suffix: str, size: int) -> None:
    """Removes files until ``size`` more bytes fit; a mapped file lives on for who has it open."""
    for partial_file in folder.glob("*.partial"):
        # Held only while writing, so a lock that can be had is one whose writer is dead.
        lock = FileLock(f"{partial_file.with_suffix(suffix)}.lock", blocking=False)
        with contextlib.suppress(TimeoutError), lock:
            partial_file.unlink(missing_ok=True)
    files = []
    for file in folder.glob(f"*{suffix}"):
        with contextlib.suppress(FileNotFoundError):  # another process makes room too
            files.append((file.stat().st_mtime, file.stat().st_size, file))
    held = sum(length for _, length, _ in files)
    for _, length, file in sorted(files):
        if held + size <= byte_limit():
            break
        lock = FileLock(f"{file}.lock", blocking=False)
        with contextlib.suppress(TimeoutError), lock:  # held: somebody is about to map it
            file.unlink(missing_ok=True)
            held -= length
