"""Frozen states, computed once on a node and then read from disk (methods §1, Modes).

In ``features`` mode the encoder never changes, and few-shot studies pass 25 to 100 times over the
same rows. What a fusion needs of the states is written to one memory-mapped file, keyed by
everything that decides it: the encoder's weights, the encoded rows, which states. All trials of a
node share it.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import nn

from bermo_ray.models.assembly import Assembled
from bermo_ray.models.backbone import Stack
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


def key(built: Assembled, data: Encoded, needs: tuple[int, ...]) -> str:
    """Identity of a file of states: weights of the encoder, encoded rows, states kept."""
    digest = hashlib.blake2b(FORMAT + repr(needs).encode(), digest_size=16)
    for name, tensor in built.stack.base.state_dict().items():
        if not name.startswith("pooler"):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    for name, rows in sorted(data.inputs.items()):
        digest.update(name.encode())
        digest.update(np.concatenate([np.asarray([len(r), *r]) for r in rows]).tobytes())
    return digest.hexdigest()


def cached(built: Assembled, data: Encoded, batch_size: int, device: torch.device) -> Encoded:
    """The same rows with their states beside them, or without where they can't be kept.

    Several processes may want the same states: one computes, the others wait for it. One that dies
    while writing leaves only a partial file, which the next removes.
    """
    folder, needs = cache_folder(), built.fusion.needs()
    if folder is None or needs is None:
        return data
    tokens = sum(len(ids) for ids in data.inputs["input_ids"])
    shape = (tokens, len(needs), built.stack.width)
    size = 4 * int(np.prod(shape))
    if size > _limit():
        return data
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{key(built, data, needs)}.npy"
    with FileLock(f"{file}.lock"):
        if not file.is_file():
            _make_room(folder, size)
            partial = file.with_suffix(".partial")
            states = np.lib.format.open_memmap(partial, "w+", np.float32, shape)
            _compute(built, data, needs, states, batch_size, device)
            states.flush()
            partial.replace(file)
    os.utime(file)  # the least recently used goes first
    return replace(data, states=np.load(file, mmap_mode="r"))


def _make_room(folder: Path, size: int) -> None:
    """Removes files until ``size`` more bytes fit; a mapped file lives on for who has it open."""
    for partial in folder.glob("*.partial"):
        # Held only while writing, so a lock that can be had is one whose writer is dead.
        lock = FileLock(f"{partial.with_suffix('.npy')}.lock", blocking=False)
        with contextlib.suppress(TimeoutError), lock:
            partial.unlink(missing_ok=True)
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
    needs: tuple[int, ...],
    states: np.ndarray,
    batch_size: int,
    device: torch.device,
) -> None:
    starts = data.token_starts
    rows = sorted(range(len(data)), key=lambda r: len(data.inputs["input_ids"][r]))
    model = built.model
    heard: dict[int, torch.Tensor] = {}
    with _overheard(built.stack, heard):
        was_training = model.training
        model.eval()
        for i in range(0, len(rows), batch_size):
            part = rows[i : i + batch_size]
            batch = data.batch(part)
            model(**{k: v.to(device) for k, v in batch.items() if k not in data.targets})
            inside = batch["attention_mask"].bool()
            for place, index in enumerate(needs):
                state = heard[index]
                state = state.transpose(0, 1) if built.stack.tokens_first else state
                for row, values, kept in zip(part, state.float().cpu(), inside, strict=True):
                    states[starts[row] : starts[row + 1], place] = values[kept].numpy()
        model.train(was_training)


@contextlib.contextmanager
def _overheard(stack: Stack, heard: dict[int, torch.Tensor]) -> Iterator[None]:
    """Within: the output of every layer, by its number from 1, of the newest forward."""
    calls = 0

    def begin(module: nn.Module, args: Any) -> None:
        nonlocal calls
        calls = 0

    def after(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal calls
        calls += 1
        heard[calls] = output[0] if isinstance(output, tuple) else output

    hooks = [stack.base.register_forward_pre_hook(begin)]
    hooks += [m.register_forward_hook(after, prepend=True) for m in stack.modules]
    yield
    for hook in hooks:
        hook.remove()


class Replay(nn.Module):
    """The model with its layers' work replaced by states read from the cache.

    The stock forward runs as ever (embeddings, masks, hooks, pooler, head), but a layer gives the
    state it is handed: any family works, and nothing of it is written twice.
    """

    def __init__(self, built: Assembled) -> None:
        super().__init__()
        self.model = built.model
        self._stack, self._needs = built.stack, built.fusion.needs() or ()
        self._states: torch.Tensor | None = None
        self._calls = 0
        for module in built.stack.modules:
            module.forward = self._instead(module.forward)

    def _instead(self, real: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._states is None:
                return real(*args, **kwargs)
            self._calls += 1
            state = args[0] if args else kwargs["hidden_states"]
            if self._calls in self._needs:
                state = self._states[self._needs.index(self._calls)]
            return (state, None) if self._stack.returns_tuple else state

        return forward

    def forward(self, states: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """``states``: (needed states, batch, tokens, width), as :meth:`Encoded.batch` gives."""
        self._states = states.transpose(1, 2) if self._stack.tokens_first else states
        self._calls = 0
        try:
            return self.model(**inputs)
        finally:
            self._states = None
