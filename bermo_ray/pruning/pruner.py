"""A pruner's life: attach → step, step, … → fold. Calls out of order are refused."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown
from bermo_ray.pruning.masks import METHODS, Matrix, penalty, top
from bermo_ray.pruning.schedule import Schedule

WIDEST = 0.2  # a wider gap between density and target drives the multipliers no harder
SECOND = 20.0  # how much faster λ₂ climbs than λ₁: gaps are small, their squares smaller


@dataclass(frozen=True)
class Count:
    """Parameters that remain, by three readings (methods §2, Counting)."""

    kept: int  # weights of the masked matrices whose mask is above 0
    prunable: int
    encoder: int  # all parameters of the encoder's layers, biases and norms too
    whole: int  # the same before any layer was dropped
    nonzero: int  # of the whole model as it would be exported
    total: int

    @property
    def remaining(self) -> float:
        """(kept + biases and norms of the layers) / all of the layers: the papers' figure. What
        went with a dropped layer counts as gone."""
        return (self.kept + self.encoder - self.prunable) / self.whole

    @property
    def density(self) -> float:
        """kept / prunable; 1 where nothing is prunable."""
        return self.kept / self.prunable if self.prunable else 1.0


class Kept(NamedTuple):
    """How much of one matrix is left; ``name`` starts with the layer's number."""

    name: str
    kept: int
    size: int


def is_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Whether it is a weight matrix: biases and norms have one dimension; XLNet's biases and
    segment embeddings have more, and are told by their names."""
    return parameter.ndim >= 2 and not name.endswith(("bias", "embed"))


def prunable(layers: nn.ModuleList, only: str | None = None) -> dict[str, nn.Parameter]:
    """Every weight matrix in the layers by name (``0.attention.self.query.weight``), each once.

    By parameter, not by ``nn.Linear``: XLNet's matrices are bare parameters; ALBERT's layers
    share theirs. ``only``: a regular expression that names must match somewhere.

    Raises:
        UserError: nothing is left to mask.
    """
    found = {
        name: parameter
        for name, parameter in layers.named_parameters()
        if is_matrix(name, parameter)
    }
    if not found:
        raise UserError("pruning: the layers hold no weight matrix to mask")
    chosen = {n: p for n, p in found.items() if only is None or re.search(only, n)}
    if not chosen:
        raise UserError(
            f"pruning.only: {only!r} matches none of {len(found)} matrices; "
            f"one is called {next(iter(found))!r}"
        )
    return chosen


class Pruner:
    """Masks on the weight matrices of the encoder's layers.

    A matrix's masked form stands in the model only within :meth:`step` and :meth:`frozen`; outside
    of them the model holds its dense weights, and the scores are here.
    """

    def __init__(self, settings: spec.Pruning, schedule: Schedule) -> None:
        if settings.method not in METHODS:
            raise UserError(unknown("pruning.method", settings.method, METHODS))
        self.settings, self.schedule = settings, schedule
        self.method = METHODS[settings.method]
        self.state: Literal["new", "attached", "folded"] = "new"
        self.matrices: list[Matrix] = []
        self.now = 1  # step of the schedule
        self.learned = torch.zeros(2)  # λ₁ and λ₂ where a density is asked for
        self._inside = False  # masked forms are in the model

    def __repr__(self) -> str:
        threshold = self.schedule.threshold(self.now)
        return f"Pruner({self.settings.method}, {len(self.matrices)} matrices, {threshold=:g})"

    def attach(self, layers: nn.ModuleList) -> None:
        """Takes up every matrix and makes its scores."""
        self._need("new", "attach")
        start = self.method.start
        if self.settings.method == "l0":
            start = self.settings.mask_start
        for name, weight in prunable(layers, self.settings.only).items():
            scores = None if start is None else nn.Parameter(torch.full_like(weight, start))
            self.matrices.append(Matrix(name, weight, scores))
        self.state = "attached"

    def forget(self, layers: nn.ModuleList) -> None:
        """Layers have left the model: their matrices and scores go too. Names stay as they were."""
        self._need("attached", "forget")
        here = {id(p) for p in layers.parameters()}
        self.matrices = [m for m in self.matrices if id(m.weight) in here]

    def scores(self) -> list[nn.Parameter]:
        """All scores, of the methods that have them."""
        return [m.scores for m in self.matrices if m.scores is not None]

    @property
    def noisy(self) -> list[nn.Parameter]:
        """Weights whose gradients a data-parallel wrapper must leave alone: under L0 each worker's
        mask is its own, so the chain rule comes before the average (:meth:`step` does both)."""
        return [m.weight for m in self.matrices] if self.method.noisy else []

    @property
    def multiplier(self) -> float:
        """λ now: of the schedule or, where a density is asked for, as learned so far."""
        if self.settings.target is not None:
            return self._learned(self._gap())
        return self.schedule.multiplier(self.now) if self.method.shift is not None else 0.0

    def _learned(self, gap: float) -> float:
        """Derivative of λ₁·gap + λ₂·gap² (augmented Lagrangian) by the density."""
        first, second = self.learned.tolist()
        return float(first + 2 * second * gap)

    @contextmanager
    def step(self, t: int) -> Iterator[None]:
        """One optimiser step: forward and backward belong inside, the optimiser behind it.

        Within, the model runs on masked weights, made once however many micro-batches there are.
        At its end the dense weights are back, with their gradients and the scores', penalty
        included. A step that raises leaves the weights as they were.
        """
        self._need("attached", "step")
        self.now = t
        with self._masked(training=True) as dense:
            yield
            forms = [m.weight.data for m in self.matrices]  # their memory becomes the scores' grads
        with torch.no_grad():
            self._chain(dense, forms)

    def _chain(self, dense: list[torch.Tensor], forms: list[torch.Tensor]) -> None:
        shares, factor = self._weights(), self._climb()
        for matrix, weight, out, share in zip(self.matrices, dense, forms, shares, strict=True):
            grad = matrix.weight.grad
            if grad is None:  # no forward came by (layers that a model has but does not use)
                continue
            self.method.chain(matrix, weight, grad, out, factor * share / matrix.size)
            if matrix.scores is not None:
                matrix.scores.grad = out
        if self.method.noisy and dist.is_initialized():
            self._average()

    def _climb(self) -> float:
        """λ of this step; a learned one goes a step up, or down."""
        if self.settings.target is None:
            return self.multiplier
        gap = self._gap()  # ascent on both multipliers (methods §2, Target mode)
        rate = self.settings.multiplier_rate / self.schedule.total
        self.learned += rate * torch.tensor([gap, SECOND * gap**2])
        return self._learned(gap)

    def settle(self, furthest: float) -> None:
        """Behind an optimiser step at the flat end: moves all scores alike, by no more than
        ``furthest``, towards the density asked for.

        The multipliers bring the density near its target; how near depends on how long the run is.
        A common shift is the smallest change of the scores that closes what gap is left, and it
        keeps their order.
        """
        self._need("attached", "settle")
        if self.settings.target is None or not self.schedule.flat(self.now):
            return
        scores = [s.detach() for s in self.scores()]
        keep = round(self.schedule.density(self.now) * sum(s.numel() for s in scores))
        lowest, _ = top(scores, keep)
        border = self.method.border(self.schedule.threshold(self.now))
        assert border is not None  # only methods that have one take a target
        shift = border - lowest
        for score in scores:
            score.add_(max(-furthest, min(furthest, shift)))

    def _average(self) -> None:
        tensors = [m.weight for m in self.matrices] + self.scores()
        grads = [t.grad for t in tensors if t.grad is not None]
        waits = [dist.all_reduce(g, async_op=True) for g in grads]
        for wait, grad in zip(waits, grads, strict=True):
            wait.wait()
            grad.div_(dist.get_world_size())

    def _weights(self) -> list[float]:
        """What each matrix counts in the penalty: alike, as in the reference (a score in a small
        matrix is pushed harder), or by its size, which makes it the expected density."""
        if self.settings.penalty == "matrix" and self.settings.target is None:
            return [1 / len(self.matrices)] * len(self.matrices)
        total = sum(m.size for m in self.matrices)
        return [m.size / total for m in self.matrices]

    def penalty(self) -> torch.Tensor:
        """R: the weighted mean over matrices of mean σ(S + shift); 0 for methods without one."""
        self._need("attached", "penalty")
        if self.method.shift is None:
            return torch.zeros(())
        values = [penalty(m, self.method.shift) for m in self.matrices]
        return torch.stack([w * v for w, v in zip(self._weights(), values, strict=True)]).sum()

    def _gap(self) -> float:
        """By what share the density, as an evaluation would count it, is off what is asked by now.

        Scores take a while from their start to the border. Counted in full, the gap of that while
        would drive the multipliers far beyond what the constraint needs.
        """
        kept = sum(int(self.method.opened(m).count_nonzero()) for m in self.matrices)
        density, asked = kept / sum(m.size for m in self.matrices), self.schedule.density(self.now)
        return max(-WIDEST, min(WIDEST, (density - asked) / max(density, asked)))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within: no gradients, and the model holds its masked weights, folded once."""
        self._need("attached", "frozen")
        if self._inside:
            yield
            return
        with torch.no_grad(), self._masked(training=False):
            yield

    @contextmanager
    def _masked(self, training: bool) -> Iterator[list[torch.Tensor]]:
        """The model on masked weights; gives the dense ones, and puts them back at the end."""
        dense = [m.weight.data for m in self.matrices]
        with torch.no_grad():
            self._update()
            forms = [self.method.masked(m, training) for m in self.matrices]
        self._put(forms)
        self._inside = True
        try:
            yield dense
        finally:
            self._inside = False
            self._put(dense)

    def _update(self) -> None:
        together = self.settings.scope == "global"
        self.method.update(self.matrices, self.schedule.threshold(self.now), together)

    def _put(self, weights: list[torch.Tensor]) -> None:
        for matrix, weight in zip(self.matrices, weights, strict=True):
            matrix.weight.data = weight

    def kept(self) -> list[Kept]:
        """What is left of each matrix, by the mask of evaluation at the threshold of now."""
        self._need("attached", "kept")
        if not self._inside:
            self._update()
        return [
            Kept(m.name, int(self.method.opened(m).count_nonzero()), m.size) for m in self.matrices
        ]

    def fold(self) -> None:
        """W becomes M ⊙ W for good (L0's soft values included); the scores are gone."""
        self._need("attached", "fold")
        with torch.no_grad():
            self._update()
            # Adding 0 makes −0, what a closed gate leaves of a negative weight, a plain zero.
            self._put([self.method.masked(m, training=False).add_(0.0) for m in self.matrices])
        self.matrices, self.state = [], "folded"

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Scores by the matrices' names, and the learned multipliers."""
        found = {m.name: m.scores.detach() for m in self.matrices if m.scores is not None}
        return {**found, "multipliers": self.learned}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """The inverse of :meth:`state_dict`, in place."""
        self._need("attached", "load_state_dict")
        mine = self.state_dict()
        if mine.keys() != state.keys():
            raise RuntimeError("pruner: the saved scores are not those of these matrices")
        for name, tensor in mine.items():
            tensor.copy_(state[name])

    def _need(self, state: str, call: str) -> None:
        if self.state != state:
            raise RuntimeError(f"pruner: {call}() needs state {state!r}, it is {self.state!r}")


@torch.no_grad()
def count(
    model: nn.Module, layers: nn.ModuleList, pruner: Pruner | None = None, whole: int | None = None
) -> Count:
    """What remains of the model, read off the evaluation masks; without masks, off the weights.

    ``whole``: parameters of the layers before any of them was dropped.
    """
    if pruner is not None and pruner.state == "attached":
        with pruner.frozen():
            kept = pruner.kept()
            nonzero = _nonzero(model)
    else:
        weights = prunable(layers)
        kept = [Kept(n, int(w.count_nonzero()), w.numel()) for n, w in weights.items()]
        nonzero = _nonzero(model)
    encoder = sum(p.numel() for p in layers.parameters())
    return Count(
        kept=sum(k.kept for k in kept),
        prunable=sum(k.size for k in kept),
        encoder=encoder,
        whole=encoder if whole is None else whole,
        nonzero=nonzero,
        total=sum(p.numel() for p in model.parameters()),
    )


def _nonzero(model: Any) -> int:
    return sum(int(p.count_nonzero()) for p in model.parameters())
