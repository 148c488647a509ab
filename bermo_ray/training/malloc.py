"""Freed memory stays with the process."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20  # what glibc allows


def keep_freed_memory() -> None:
    """glibc hands freed blocks of some MB back to the system at once, and every step that takes
    them again pays a page fault for each 4 kB: as much as the arithmetic of a mask. Where there is
    another C library, nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
