"""Disks that are soon full."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PAGE = 4096  # bytes


@contextmanager
def mount_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk in memory of that size, until the block ends."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    folder.mkdir(parents=True)
    size = f"size={megabytes}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_up(folder: Path, leave: int = 0) -> Path:
    """A file that leaves so many bytes free on the disk of a folder; it grows where it is there."""
    file = folder / "ballast"
    with file.open("ab", buffering=0) as stream, contextlib.suppress(OSError):
        while True:  # others may write at the same time
            stream.write(b"\0" * _PAGE)
    with file.open("r+b") as stream:
        stream.truncate(max(0, file.stat().st_size - leave))
    return file
