"""Frozen states, computed once on a node and then read from disk (methods §1, Modes).

In ``features`` mode the encoder never changes, and few-shot studies pass 25 to 100 times over the
same rows. What a fusion needs of the states is written to one memory-mapped file, keyed by
everything that decides it: the encoder's weights, the encoded rows, which states. All trials of a
node share it.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from bermo_ray.models import heads
from bermo_ray.models.assembly import Assembled
from bermo_ray.tasks.encoding import Encoded

CACHE_VARIABLE = "BERMO_CACHE"  # a folder, or "off"
LIMIT_VARIABLE = "BERMO_CACHE_GB"  # the oldest files go when the folder holds more
FORMAT = b"1"  # a new number makes every file of an older layout unfindable


def cache_folder() -> Path | None:
    """Where states are kept; None where the user turned the cache off."""
    asked = os.environ.get(CACHE_VARIABLE, "~/.cache/bermo_ray")
    return None if asked == "off" else Path(asked).expanduser() / "features"


def _limit() -> int:
    return int(float(os.environ.get(LIMIT_VARIABLE, "20")) * 1e9)


@dataclass(frozen=True)
class Wanted:
    """What is kept of an encoder's states: h_1 … h_L or some of them, all tokens or one."""

    layers: tuple[int, ...]
    tokens: slice

    @classmethod
    def by(cls, built: Assembled, data: Encoded) -> "Wanted | None":
        """What the fusion and the head of the task read; None where the states change as it learns.

        Most classifiers read one token. A fusion that goes token by token then needs only that
        token's states: a row's features are a few vectors.
        """
        layers = built.fusion.needs()
        if layers is None:
            return None
        tokens = heads.reads(built.model, data.task.head)
        return cls(layers, tokens if built.fusion.tokenwise else slice(None))


def key(built: Assembled, data: Encoded, wanted: Wanted) -> str:
    """Identity of a file of states: weights of the encoder, encoded rows, what is kept."""
    digest = hashlib.blake2b(FORMAT + repr(wanted).encode(), digest_size=16)
    for name, tensor in built.stack.base.state_dict().items():
        if not name.startswith("pooler"):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    for name, rows in sorted(data.inputs.items()):
        digest.update(name.encode())
        digest.update(np.concatenate([np.asarray([len(r), *r]) for r in rows]).tobytes())
    return digest.hexdigest()


def prepare(built: Assembled, data: Encoded, batch_size: int, device: torch.device) -> Encoded:
    """The rows with their states: from the cache, or computed for each batch where they can't be
    kept (the cache is off, or too small). Both give the same numbers.

    Several processes may want the same states: one computes, the others wait for it. One that dies
    while writing leaves only a partial file, which the next removes.
    """
    wanted = Wanted.by(built, data)
    if wanted is None:
        return data
    compute = partial(_compute, built, data, wanted, device)
    inputs = {name: [row[wanted.tokens] for row in rows] for name, rows in data.inputs.items()}
    starts = np.cumsum([0, *map(len, inputs["input_ids"])])
    shape = (int(starts[-1]), len(wanted.layers), built.stack.width)
    size, folder = 4 * int(np.prod(shape)), cache_folder()
    if folder is None or size > _limit():
        return replace(data, inputs=inputs, states=compute)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{key(built, data, wanted)}.npy"
    with FileLock(f"{file}.lock"):
        if not file.is_file():
            _make_room(folder, size)
            partial_file = file.with_suffix(".partial")
            states = np.lib.format.open_memmap(partial_file, "w+", np.float32, shape)
            rows = sorted(range(len(data)), key=lambda r: len(data.inputs["input_ids"][r]))
            for i in range(0, len(rows), batch_size):
                part = rows[i : i + batch_size]
                for row, found in zip(part, compute(part), strict=True):
                    states[starts[row] : starts[row + 1]] = found
            states.flush()
            partial_file.replace(file)
    os.utime(file)  # the least recently used goes first
    kept = np.load(file, mmap_mode="r").view(np.ndarray)  # memmap's own slicing is slow
    return replace(
        data,
        inputs=inputs,
        states=lambda rows: [kept[starts[row] : starts[row + 1]] for row in rows],
    )


def _make_room(folder: Path, size: int) -> None:
    """Removes files until ``size`` more bytes fit; a mapped file lives on for who has it open."""
    for partial_file in folder.glob("*.partial"):
        # Held only while writing, so a lock that can be had is one whose writer is dead.
        lock = FileLock(f"{partial_file.with_suffix('.npy')}.lock", blocking=False)
        with contextlib.suppress(TimeoutError), lock:
            partial_file.unlink(missing_ok=True)
    files = sorted(folder.glob("*.npy"), key=lambda f: f.stat().st_mtime)
    held = sum(f.stat().st_size for f in files)
    for file in files:
        if held + size <= _limit():
            break
        held -= file.stat().st_size
        file.unlink(missing_ok=True)


@torch.no_grad()
def _compute(
    built: Assembled,
    data: Encoded,
    wanted: Wanted,
    device: torch.device,
    rows: Sequence[int] | np.ndarray,
) -> list[np.ndarray]:
    """The wanted states of these rows, by a forward of the encoder without dropout."""
    heard: dict[int, torch.Tensor] = {}

    def record(index: int, state: torch.Tensor) -> torch.Tensor:
        heard[index] = state
        return state

    batch = {k: v.to(device) for k, v in data.batch(rows).items() if k not in data.targets}
    fusion, base = built.fusion, built.stack.base
    modes = fusion.training, base.training
    fusion.tape = record
    fusion.eval()  # draws no random numbers, so that a cached run and this one see the same
    base.eval()
    base(**batch)
    fusion.train(modes[0])
    base.train(modes[1])
    fusion.tape = None
    states = torch.stack([heard[index] for index in wanted.layers])  # (layers, batch, tokens, d)
    states = states.transpose(1, 2) if built.stack.tokens_first else states
    found, width = states.permute(1, 2, 0, 3).float().cpu().numpy(), states.shape[2]
    return [found[i, data.own(row, width)][wanted.tokens] for i, row in enumerate(rows)]


class Replay(nn.Module):
    """The model with its layers' work replaced by states that are handed in.

    The stock forward runs as ever (embeddings, masks, hooks, pooler, head), but layers only pass
    on what they get, and the fusion hears the states instead: any family works, and nothing of it
    is written twice.
    """

    def __init__(self, built: Assembled, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.model = built.model
        self._built, self._layers = built, layers
        self._replaying = False
        for module in built.stack.modules:
            module.forward = self._idle_while_replaying(module.forward)

    def _idle_while_replaying(self, real: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not self._replaying:
                return real(*args, **kwargs)
            state = args[0] if args else kwargs["hidden_states"]
            return (state, None) if self._built.stack.returns_tuple else state

        return forward

    def forward(self, states: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """``states``: (layers, batch, tokens, width), as :meth:`Encoded.batch` gives them."""
        states = states.transpose(1, 2) if self._built.stack.tokens_first else states
        given = dict(zip(self._layers, states, strict=True))
        self._replaying = True
        self._built.fusion.tape = lambda index, state: given.get(index, state)
        try:
            return self.model(**inputs)
        finally:
            self._replaying, self._built.fusion.tape = False, None
