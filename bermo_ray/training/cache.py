"""Arrays that are computed once on a node and then read from disk by all of its trials.

One file each, memory-mapped, keyed by everything that decides its content: the weights it comes
from, the encoded rows, what is kept of them.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from bermo_ray.tasks.encoding import Encoded

CACHE_VARIABLE = "BERMO_CACHE"  # a folder, or "off"
LIMIT_VARIABLE = "BERMO_CACHE_GB"  # the oldest files go when the folder holds more
FORMAT = b"1"  # a new number makes every file of an older layout unfindable


def folder() -> Path | None:
    """Where arrays are kept; None where the user turned the cache off."""
    asked = os.environ.get(CACHE_VARIABLE, "~/.cache/bermo_ray")
    return None if asked == "off" else Path(asked).expanduser() / "features"


def _limit() -> int:
    return int(float(os.environ.get(LIMIT_VARIABLE, "20")) * 1e9)


def key(model: nn.Module, data: Encoded, kept: str, without: str = "\0") -> str:
    """Identity of an array: weights (but for those whose name starts so), rows, what is kept."""
    digest = hashlib.blake2b(FORMAT + kept.encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        if not name.startswith(without):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    for name, rows in sorted(data.inputs.items()):
        digest.update(name.encode())
        digest.update(np.concatenate([np.asarray([len(r), *r]) for r in rows]).tobytes())
    return digest.hexdigest()


def fits(shape: tuple[int, ...]) -> bool:
    """Whether a float32 array of that shape may be kept at all."""
    return folder() is not None and 4 * int(np.prod(shape)) <= _limit()


def get(name: str, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]) -> np.ndarray:
    """The array of that name, read-only; ``fill`` writes it where it is not there yet.

    Several processes may want the same one: one fills, the others wait for it. One that dies while
    writing leaves only a partial file, which the next removes.
    """
    place = folder()
    assert place is not None
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}.npy"
    with FileLock(f"{file}.lock"):
        if not file.is_file():
            _make_room(place, 4 * int(np.prod(shape)))
            partial_file = file.with_suffix(".partial")
            array = np.lib.format.open_memmap(partial_file, "w+", np.float32, shape)
            fill(array)
            array.flush()
            partial_file.replace(file)
        os.utime(file)  # the least recently used goes first
        kept: np.ndarray = np.load(file, mmap_mode="r").view(np.ndarray)  # memmap slices slowly
    return kept


def _make_room(place: Path, size: int) -> None:
    """Removes files until ``size`` more bytes fit; a mapped file lives on for who has it open."""
    for partial_file in place.glob("*.partial"):
        # Held only while writing, so a lock that can be had is one whose writer is dead.
        lock = FileLock(f"{partial_file.with_suffix('.npy')}.lock", blocking=False)
        with contextlib.suppress(TimeoutError), lock:
            partial_file.unlink(missing_ok=True)
    files = sorted(place.glob("*.npy"), key=lambda f: f.stat().st_mtime)
    held = sum(f.stat().st_size for f in files)
    for file in files:
        if held + size <= _limit():
            break
        lock = FileLock(f"{file}.lock", blocking=False)
        with contextlib.suppress(TimeoutError), lock:  # held: somebody is about to map it
            held -= file.stat().st_size
            file.unlink(missing_ok=True)
