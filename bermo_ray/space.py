"""A full disk, told from other errors: it is no trial's fault, and ends when room is made."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bermo_ray.errors import StudyHaltedError

_FULL = (errno.ENOSPC, errno.EDQUOT)
# Of libraries that pass no error number on: safetensors, pyarrow, SQLite.
_WORDS = ("no space left", "os error 28", "disk is full", "disk quota exceeded")
_NEXT_TO_NOTHING = 1 << 20  # bytes; torch.save says only that a write failed


class OutOfSpaceError(StudyHaltedError):
    """A disk is full. What was being written is not there; what was there before still is."""


@contextmanager
def watch_space(field: str, folder: str | Path, advice: str = "") -> Iterator[None]:
    """Within: an error that comes of a full disk becomes an :class:`OutOfSpaceError`.

    Args:
        field: What says where the folder is, as ``storage``.
        folder: Where is written, or its URI.
        advice: What else to do than to make room.
    """
    try:
        yield
    except OutOfSpaceError:
        raise
    except Exception as error:
        if not (_says_full(error) or _is_full(folder)):
            raise
        or_else = f", or {advice}" if advice else ""
        raise OutOfSpaceError(
            f"{field}: no room left in {folder}; make some{or_else}, then resume the study"
        ) from error


def _says_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, is that of a full disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if any(words in str(error).lower() for words in _WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_full(folder: str | Path) -> bool:
    free = find_free_bytes(folder)
    return free is not None and free < _NEXT_TO_NOTHING


def find_free_bytes(folder: str | Path) -> int | None:
    """Bytes that are free where a folder lies or will lie; None of a URI."""
    if "://" in str(folder):
        return None
    path = Path(folder).absolute()
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())).free
