"""Frozen states, computed once per node and then read from disk (docs/methods.md §1, Modes).

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

from bermo_ray.models.assembly import AssembledModel
from bermo_ray.models.stock import tokens_read
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.training import array_cache


@dataclass(frozen=True)
class KeptStates:
    """What is kept of an encoder's states: h_1 … h_L or some of them, all tokens or one."""

    states: tuple[int, ...]
    tokens: slice

    @classmethod
    def of(cls, model: AssembledModel, data: EncodedRows) -> "KeptStates | None":
        """What the fusion and the head of the task read; None where the states change as it learns.

        Most classifiers read one token. A fusion that goes token by token then needs only that
        token's states: a row's features are a few vectors.
        """
        states = model.fusion.states_read()
        if states is None:
            return None
        tokens = tokens_read(model.network, data.task.head)
        return cls(states, tokens if model.fusion.tokenwise else slice(None))


def with_states(
    model: AssembledModel, data: EncodedRows, batch_size: int, device: torch.device
) -> EncodedRows:
    """The rows with their states: from the cache, or computed for each batch where they can't be
    kept (the cache is off, or too small). Both give the same numbers. Where the fusion allows no
    states to be kept, the rows as they are.
    """
    kept = KeptStates.of(model, data)
    if kept is None:
        return data
    compute = partial(_compute, model, data, kept, device)
    inputs = {name: rows.cut(kept.tokens) for name, rows in data.inputs.items()}
    offsets = np.cumsum([0, *inputs["input_ids"].lengths])
    shape = (int(offsets[-1]), len(kept.states), model.stack.width)
    if not array_cache.fits(shape):
        return replace(data, inputs=inputs, states=compute)

    def fill(array: np.ndarray) -> None:
        for i in range(0, len(data), batch_size):
            rows = data.rows_by_length[i : i + batch_size]
            for row, states in zip(rows, compute(rows), strict=True):
                array[offsets[row] : offsets[row + 1]] = states

    key = array_cache.make_key(model.stack.base, data, repr(kept), "pooler")
    array = array_cache.read_or_fill(key, shape, fill)

    def read(rows: Sequence[int] | np.ndarray) -> list[np.ndarray]:
        return [array[offsets[row] : offsets[row + 1]] for row in rows]

    return replace(data, inputs=inputs, states=read)


@torch.no_grad()
def _compute(
    model: AssembledModel,
    data: EncodedRows,
    kept: KeptStates,
    device: torch.device,
    rows: Sequence[int] | np.ndarray,
) -> list[np.ndarray]:
    """The states of these rows that are kept, [s, n, d] of each row, by a forward of the encoder
    without dropout."""
    recorded: dict[int, torch.Tensor] = {}

    def record(index: int, state: torch.Tensor) -> torch.Tensor:
        recorded[index] = state
        return state

    batch = {k: v.to(device) for k, v in data.batch(rows).items() if k not in data.gold}
    fusion, base = model.fusion, model.stack.base
    modes = fusion.training, base.training
    fusion.recorder = record
    fusion.eval()  # draws no random numbers, so that a cached run and this one see the same
    base.eval()
    base(**batch)
    fusion.train(modes[0])
    base.train(modes[1])
    fusion.recorder = None
    states = torch.stack([recorded[index] for index in kept.states])  # [n, b, s, d]
    states = states.transpose(1, 2) if model.stack.tokens_first else states
    by_row, width = states.permute(1, 2, 0, 3).float().cpu().numpy(), states.shape[2]
    return [by_row[i, data.piece_slice(row, width)][kept.tokens] for i, row in enumerate(rows)]


class ReplayNetwork(nn.Module):
    """The network with its layers' work replaced by states that are handed in.

    The stock forward runs as ever (embeddings, masks, hooks, pooler, head), but layers only pass
    on what they get, and the fusion is given the states instead: any family works, and nothing of
    it is written twice.
    """

    def __init__(self, model: AssembledModel, states: tuple[int, ...]) -> None:
        super().__init__()
        self.network = model.network
        self._model, self._states = model, states
        self._replaying = False
        for module in model.stack.modules:
            module.forward = self._idle_while_replaying(module.forward)

    def _idle_while_replaying(self, forward: Any) -> Any:
        def idle_or_forward(*args: Any, **kwargs: Any) -> Any:
            if not self._replaying:
                return forward(*args, **kwargs)
            state = args[0] if args else kwargs["hidden_states"]
            return (state, None) if self._model.stack.returns_tuple else state

        return idle_or_forward

    def forward(self, states: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """``states``: [n, b, s, d], as :meth:`EncodedRows.batch` gives them."""
        states = states.transpose(1, 2) if self._model.stack.tokens_first else states
        by_index = dict(zip(self._states, states, strict=True))
        self._replaying = True
        self._model.fusion.recorder = lambda index, state: by_index.get(index, state)
        try:
            return self.network(**inputs)
        finally:
            self._replaying, self._model.fusion.recorder = False, None
