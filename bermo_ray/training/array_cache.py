"""Arrays of an encoder's states or a teacher's logits, memory-mapped from a node's cache.

Keyed by everything that decides them: the weights, the encoded rows, what is kept of them.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bermo_ray import cache
from bermo_ray.tasks.encoded import EncodedRows

_FORMAT = b"2"  # a new number makes every file of an older layout unfindable
_FOLDER = "features"  # within the cache


def make_key(network: nn.Module, data: EncodedRows, kept: str, without: str = "\0") -> str:
    """Identity of an array, as hex digits.

    Args:
        network: Whose weights decide it,
        data: and the rows whose inputs do.
        kept: What is kept of them.
        without: Weights whose names start so do not count.
    """
    digest = hashlib.blake2b(_FORMAT + kept.encode(), digest_size=16)
    for name, tensor in network.state_dict().items():
        if not name.startswith(without):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    for name, rows in sorted(data.inputs.items()):
        digest.update(name.encode())
        digest.update(rows.stamp())
    return digest.hexdigest()


def fits(shape: tuple[int, ...]) -> bool:
    """Whether a float32 array of that shape may be kept at all."""
    return cache.find_folder(_FOLDER) is not None and _byte_size(shape) <= cache.byte_limit()


def read_or_fill(
    name: str, shape: tuple[int, ...], fill: Callable[[np.ndarray], None]
) -> np.ndarray:
    """The array of that name, read-only; ``fill`` writes it where it is not there yet."""
    folder = cache.find_folder(_FOLDER)
    assert folder is not None

    def write(file: Path) -> None:
        array = np.lib.format.open_memmap(file, "w+", np.float32, shape)
        if hasattr(
            os, "posix_fallocate"
        ):  # without room, a write to a mapped file ends the process
            with file.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
        fill(array)
        array.flush()

    def read(file: Path) -> np.ndarray:
        array: np.ndarray = np.load(file, mmap_mode="r").view(np.ndarray)  # memmap slices slowly
        return array

    return cache.read_or_make(folder / f"{name}.npy", _byte_size(shape), write, read)


def _byte_size(shape: tuple[int, ...]) -> int:
    return 4 * int(np.prod(shape))
