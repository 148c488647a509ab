"""Frozen states, computed once on a node and then read from disk (methods §1, Modes).

In ``features`` mode the encoder never changes, and few-shot studies pass 25 to 100 times over the
same rows. What a fusion needs of the states is written to one memory-mapped file, keyed by
everything that decides it: the encoder's weights, the encoded rows, which states. All trials of a
node share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from bermo_ray.models import heads
from bermo_ray.models.assembly import Assembled
from bermo_ray.tasks.encoded import Encoded
from bermo_ray.training import cache


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


def prepare(built: Assembled, data: Encoded, batch_size: int, device: torch.device) -> Encoded:
    """The rows with their states: from the cache, or computed for each batch where they can't be
    kept (the cache is off, or too small). Both give the same numbers.
    """
    wanted = Wanted.by(built, data)
    if wanted is None:
        return data
    compute = partial(_compute, built, data, wanted, device)
    inputs = {name: rows.cut(wanted.tokens) for name, rows in data.inputs.items()}
    starts = np.cumsum([0, *inputs["input_ids"].lengths])
    shape = (int(starts[-1]), len(wanted.layers), built.stack.width)
    if not cache.fits(shape):
        return replace(data, inputs=inputs, states=compute)

    def fill(states: np.ndarray) -> None:
        for i in range(0, len(data), batch_size):
            part = data.by_length[i : i + batch_size]
            for row, found in zip(part, compute(part), strict=True):
                states[starts[row] : starts[row + 1]] = found

    kept = cache.get(cache.key(built.stack.base, data, repr(wanted), "pooler"), shape, fill)
    return replace(
        data,
        inputs=inputs,
        states=lambda rows: [kept[starts[row] : starts[row + 1]] for row in rows],
    )


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
