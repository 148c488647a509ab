"""A pruner's life: attach → step (with its penalty) → fold. Calls out of order are refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.utils import parametrize

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown
from bermo_ray.pruning.masks import METHODS, Mask
from bermo_ray.pruning.schedule import Schedule


@dataclass(frozen=True)
class Count:
    """Parameters that remain, by three readings (methods §2, Counting)."""

    kept: int  # weights of the masked matrices whose mask is above 0
    prunable: int
    encoder: int  # all parameters of the encoder's layers, biases and norms too
    nonzero: int  # of the whole model as it would be exported
    total: int

    @property
    def remaining(self) -> float:
        """(kept + biases and norms of the layers) / all of the layers: the papers' figure."""
        return (self.kept + self.encoder - self.prunable) / self.encoder

    @property
    def density(self) -> float:
        """kept / prunable; 1 where nothing is prunable."""
        return self.kept / self.prunable if self.prunable else 1.0


def prunable(layers: nn.ModuleList) -> list[tuple[nn.Module, str]]:
    """(module, parameter name) of every weight matrix in the layers, each once.

    By parameter, not by ``nn.Linear``: XLNet's matrices are bare parameters; ALBERT's layers
    share theirs. Biases and norms have one dimension; XLNet's biases and segment embeddings have
    more, and are told by their names.
    """
    found, seen = [], set()
    for module in layers.modules():
        for name, parameter in module.named_parameters(recurse=False):
            is_matrix = parameter.ndim >= 2 and not name.endswith(("bias", "embed"))
            if is_matrix and id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((module, name))
    return found


class Pruner:
    """Masks on every weight matrix of the encoder's layers."""

    def __init__(self, settings: spec.Pruning) -> None:
        if settings.method not in METHODS:
            raise UserError(unknown("pruning.method", settings.method, METHODS))
        self.settings = settings
        self.state: Literal["new", "attached", "folded"] = "new"
        self.masks: list[Mask] = []
        self._places: list[tuple[nn.Module, str]] = []

    def attach(self, layers: nn.ModuleList) -> None:
        """Puts a mask on every matrix; their scores become parameters of the model."""
        self._need("new", "attach")
        self._places = prunable(layers)
        if not self._places:
            raise UserError("pruning: the layers hold no weight matrix to mask")
        for module, name in self._places:
            mask = METHODS[self.settings.method](getattr(module, name), self.settings.mask_start)
            parametrize.register_parametrization(module, name, mask)
            self.masks.append(mask)
        self.state = "attached"

    def step(self, schedule: Schedule, step: int) -> float:
        """Sets the masks to step t of the schedule; gives λ(t)."""
        self._need("attached", "step")
        for mask in self.masks:
            mask.threshold = schedule.threshold(step)
        return schedule.multiplier(step)

    def penalty(self) -> torch.Tensor:
        """R: the mean over matrices, unweighted as in the reference (a score in a small matrix is
        pushed harder), or weighted by size, which is the expected density."""
        self._need("attached", "penalty")
        values = torch.stack([mask.penalty() for mask in self.masks])
        if self.settings.penalty == "matrix":
            return values.mean()
        sizes = values.new_tensor([mask.scores.numel() for mask in self.masks])
        return (values * sizes).sum() / sizes.sum()

    def matrices(self) -> list[tuple[Mask, torch.Tensor]]:
        """Each mask with the unmasked weight it is on."""
        self._need("attached", "matrices")
        modules: list[tuple[Any, str]] = list(self._places)
        originals = [module.parametrizations[name].original for module, name in modules]
        return list(zip(self.masks, originals, strict=True))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within: no gradients, and each masked matrix is computed once, however often used."""
        self._need("attached", "frozen")
        with torch.no_grad(), parametrize.cached():
            yield

    def fold(self) -> None:
        """W becomes M ⊙ W for good (L0's soft values included); the scores are gone."""
        self._need("attached", "fold")
        for (module, name), mask in zip(self._places, self.masks, strict=True):
            mask.eval()
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)
        self.masks, self.state = [], "folded"

    def _need(self, state: str, call: str) -> None:
        if self.state != state:
            raise RuntimeError(f"pruner: {call}() needs state {state!r}, it is {self.state!r}")


@torch.no_grad()
def count(model: nn.Module, layers: nn.ModuleList, pruner: Pruner | None = None) -> Count:
    """What remains of the model, read off the evaluation masks; without masks, off the weights."""
    if pruner is not None and pruner.state == "attached":
        matrices = [(mask.mask(training=False), weight) for mask, weight in pruner.matrices()]
        scores = {id(mask.scores) for mask in pruner.masks}
    else:
        weights = [getattr(module, name) for module, name in prunable(layers)]
        matrices, scores = [((weight != 0).float(), weight) for weight in weights], set()
    masked = {id(weight) for _, weight in matrices}
    everything = [p for p in model.parameters() if id(p) not in scores]
    plain = [p for p in everything if id(p) not in masked]
    return Count(
        kept=sum(int((mask > 0).sum()) for mask, _ in matrices),
        prunable=sum(weight.numel() for _, weight in matrices),
        encoder=sum(p.numel() for p in layers.parameters() if id(p) not in scores),
        nonzero=sum(int((mask * weight != 0).sum()) for mask, weight in matrices)
        + sum(int((p != 0).sum()) for p in plain),
        total=sum(p.numel() for p in everything),
    )
