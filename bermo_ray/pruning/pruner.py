"""Masks on the weight matrices of an encoder's layers, from attaching to folding."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from bermo_ray.errors import UserError, unknown
from bermo_ray.pruning.joining import Joined, join, keep_apart
from bermo_ray.pruning.masks import METHODS, Matrix, mean_penalty, top_cut
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.trial import Penalized, Pruning

_WIDEST_GAP = 0.2  # a wider one between density and target drives the multipliers no harder
_SECOND_RATE = 20.0  # how much faster λ₂ climbs than λ₁: gaps are small, their squares smaller


_DENSITY_KEY = "density_before_shift"  # in a state dict


class KeptWeights(NamedTuple):
    """How much of one matrix is left; ``name`` starts with the layer's number."""

    name: str
    kept: int
    size: int


def is_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Whether it is a weight matrix: biases and norms have one dimension; XLNet's biases and
    segment embeddings have more, and are told by their names."""
    return parameter.ndim >= 2 and not name.endswith(("bias", "embed"))


def prunable_matrices(
    modules: nn.ModuleList, pattern: str | None = None
) -> dict[str, nn.Parameter]:
    """Every weight matrix in the layers by name (``0.attention.self.query.weight``), each once.

    By parameter, not by ``nn.Linear``: XLNet's matrices are bare parameters; ALBERT's layers
    share theirs. ``pattern``: a regular expression that names must match somewhere.

    Raises:
        UserError: Nothing is left to mask.
    """
    matrices = {n: p for n, p in modules.named_parameters() if is_matrix(n, p)}
    if not matrices:
        raise UserError("pruning: the layers hold no weight matrix to mask")
    matching = {n: p for n, p in matrices.items() if pattern is None or re.search(pattern, n)}
    if not matching:
        raise UserError(
            f"pruning.name_pattern: {pattern!r} matches none of {len(matrices)} matrices; "
            f"one is called {next(iter(matrices))!r}"
        )
    return matching


def _put(forms: list[tuple[Joined, torch.Tensor]]) -> None:
    """Puts masked weights into the model."""
    for joined, form in forms:
        for matrix, weight in zip(joined.members, joined.split(form), strict=True):
            matrix.weight.data = weight


def _average(grads: list[torch.Tensor]) -> None:
    """The mean over all workers of each of these gradients, in place."""
    waits = [dist.all_reduce(grad, async_op=True) for grad in grads]
    for wait, grad in zip(waits, grads, strict=True):
        wait.wait()
        grad.div_(dist.get_world_size())


def density_gap(density: float, asked: float) -> float:
    """By what share of the larger one a density is off what is asked, at most ±0.2.

    Scores take a while from where they start to the threshold. Counted in full, the gap of that
    while would drive the multipliers far beyond what the constraint needs.
    """
    gap = (density - asked) / max(density, asked)
    return max(-_WIDEST_GAP, min(_WIDEST_GAP, gap))


class Pruner:
    """Masks on the weight matrices of the encoder's layers (docs/methods.md §2).

    Its life; a call out of order is refused:

    1. ``Pruner(settings, schedule)`` is new.
    2. :meth:`attach` takes up the matrices and makes their scores, which the optimiser needs.
    3. For each optimiser step t, ``with pruner.step(t)`` holds forward and backward; behind it the
       optimiser steps, and then :meth:`shift_scores_to_density` may be called.
    4. For each evaluation, ``with pruner.frozen()`` holds the forwards.
    5. When layers have left the model, :meth:`forget_removed`.
    6. :meth:`fold` puts the masks into the weights for good. The pruner is of no use after that.

    A matrix's masked form stands in the model only within :meth:`step` and :meth:`frozen`; outside
    of them the model holds its dense weights, and the scores are here.
    """

    def __init__(self, settings: Pruning, schedule: Schedule) -> None:
        if settings.method not in METHODS:
            raise UserError(unknown("pruning.method", settings.method, METHODS))
        self.settings, self.schedule = settings, schedule
        self.method = METHODS[settings.method](settings)
        self.state: Literal["new", "attached", "folded"] = "new"
        self.matrices: list[Matrix] = []
        self.now = 1  # step t of the schedule
        self.multipliers = torch.zeros(2)  # λ₁ and λ₂, learned where a density is asked for
        # The density as the multipliers left it, before the first shift of scores; NaN before that.
        # A tensor, so that it is saved and loaded with the scores.
        self._density_before_shift = torch.full((1,), math.nan, dtype=torch.float64)
        self._inside = False  # masked forms are in the model

    def __repr__(self) -> str:
        threshold = self.schedule.threshold(self.now)
        return f"Pruner({self.settings.method}, {len(self.matrices)} matrices, {threshold=:g})"

    def attach(self, modules: nn.ModuleList) -> None:
        """Takes up every matrix of the layers and makes its scores."""
        self._need("new", "attach")
        initial = self.method.initial_score
        for name, weight in prunable_matrices(modules, self.settings.name_pattern).items():
            scores = None if initial is None else nn.Parameter(torch.full_like(weight, initial))
            self.matrices.append(Matrix(name, weight, scores))
        self.state = "attached"

    def forget_removed(self, modules: nn.ModuleList) -> None:
        """Forgets matrices, and their scores, that are not in the layers any more. Those that stay
        keep their names."""
        self._need("attached", "forget_removed")
        present = {id(p) for p in modules.parameters()}
        self.matrices = [m for m in self.matrices if id(m.weight) in present]

    def scores(self) -> list[torch.Tensor]:
        """All scores, of the methods that have them."""
        return [m.scores for m in self.matrices if m.scores is not None]

    def noisy_weights(self) -> list[torch.Tensor]:
        """Weights whose gradients a data-parallel wrapper must leave alone: under L0 each worker's
        mask is its own, so the chain rule comes before the average (:meth:`step` does both)."""
        return [m.weight for m in self.matrices] if self.method.noisy else []

    @property
    def multiplier(self) -> float:
        """λ now: of the schedule or, where a density is asked for, as learned so far; 0 for methods
        without a penalty."""
        if self._target() is not None:
            return self._learned_multiplier(self._density_gap())
        return 0.0 if self.method.penalty_shift is None else self.schedule.multiplier(self.now)

    @contextmanager
    def step(self, t: int) -> Iterator[None]:
        """One optimiser step: forward and backward belong inside, the optimiser behind it.

        Within, the model runs on masked weights, made once however many micro-batches there are.
        At its end the dense weights are back, with their gradients and the scores', the penalty's
        λ·∂R/∂S included. A step that raises leaves the weights as they were.
        """
        self._need("attached", "step")
        self.now = t
        with self.masked(training=True) as forms:
            yield
        with torch.no_grad():
            self._backward(forms)

    def _backward(self, forms: list[tuple[Joined, torch.Tensor]]) -> None:
        """From the gradients of masked weights to those of weights and scores; the memory of the
        masked forms becomes the scores' gradients.

        The penalty λ·R, R = Σ_m share_m · mean σ(S_m + shift), needs no graph: its derivative by a
        score of matrix m is λ · share_m / size_m · σ'(S + shift).
        """
        multiplier = self.update_multiplier()
        exchanged: list[torch.Tensor] = []
        for joined, out in forms:
            grad = joined.gradients()
            if grad is None:
                continue
            slope = multiplier * self._penalty_share(joined.member_size) / joined.member_size
            dense = joined.matrix.weight.detach()
            self.method.backward(joined.matrix, dense, grad, out, slope)
            joined.put_gradients(grad, out)
            exchanged += [grad, out]
        if self.method.noisy and dist.is_initialized():
            _average(exchanged)

    def update_multiplier(self) -> float:
        """λ of this step. A learned one is that of ℒ = λ₁·gap + λ₂·gap², the augmented Lagrangian
        of gap = 0, after a step of ascent: λ₁ by ∂ℒ/∂λ₁ = gap at the rate ρ, λ₂ by ∂ℒ/∂λ₂ = gap²
        at 20·ρ, where ρ = multiplier_rate/T (docs/methods.md §2, Target mode)."""
        target = self._target()
        if target is None:
            return self.multiplier
        gap = self._density_gap()
        rate = target.multiplier_rate / self.schedule.total
        self.multipliers += rate * torch.tensor([gap, _SECOND_RATE * gap**2])
        return self._learned_multiplier(gap)

    def _learned_multiplier(self, gap: float) -> float:
        """∂ℒ/∂gap = λ₁ + 2·λ₂·gap, which multiplies ∂R/∂S: R stands for the density, which is a
        count and has no gradient.

        The chain rule's ∂gap/∂density is left out. Within the clamp it is positive, D*/D² above
        the asked D* and 1/D* below; it only scales λ, which the ascent makes as large as it has to
        be. Beyond the clamp it is 0, which would end the push where the density is furthest off.
        """
        first, second = self.multipliers.tolist()
        return float(first + 2 * second * gap)

    def _density_gap(self) -> float:
        """:func:`density_gap` of what an evaluation would count, by cuts that were found before."""
        return density_gap(self._density(), self.schedule.density(self.now))

    def _density(self) -> float:
        kept = sum(int(self.method.kept_mask(m).count_nonzero()) for m in self.matrices)
        return kept / sum(m.size for m in self.matrices)

    @property
    def density_before_shift(self) -> float:
        """The density right before the first shift of scores in the flat end, as the learned
        multipliers alone left it; NaN where no density is asked for, or nothing was shifted yet."""
        return float(self._density_before_shift)

    def _target(self) -> Penalized | None:
        """The settings, if they ask for a density."""
        if isinstance(self.settings, Penalized) and self.settings.target_density is not None:
            return self.settings
        return None

    def shift_scores_to_density(self, furthest: float) -> None:
        """Behind an optimiser step in the flat end: moves all scores alike, by no more than
        ``furthest``, towards the density asked for.

        The multipliers bring the density near its target; how near depends on how long the run is.
        A common shift is the smallest change of the scores that closes what gap is left, and it
        keeps their order.
        """
        self._need("attached", "shift_scores_to_density")
        if self._target() is None or not self.schedule.in_flat_end(self.now):
            return
        if math.isnan(self.density_before_shift):
            self._update_cuts()
            self._density_before_shift.fill_(self._density())
        scores = [s.detach() for s in self.scores()]
        keep = round(self.schedule.density(self.now) * sum(s.numel() for s in scores))
        cut, _ = top_cut(scores, keep)
        threshold = self.method.score_threshold(self.schedule.threshold(self.now))
        assert threshold is not None  # only methods that have one take a target
        shift = threshold - cut
        for score in scores:
            score.add_(max(-furthest, min(furthest, shift)))

    def _penalty_share(self, size: int) -> float:
        """What a matrix of that size counts in the penalty: as much as any, as in the reference (a
        score in a small matrix is pushed harder), or by its size, which makes it the expected
        density."""
        by_size = isinstance(self.settings, Penalized) and self.settings.penalty == "weight"
        if not by_size and self._target() is None:
            return 1 / len(self.matrices)
        return size / sum(m.size for m in self.matrices)

    def penalty(self) -> torch.Tensor:
        """R, a scalar: the weighted mean over matrices of mean σ(S + shift); 0 without a penalty.

        Training does not call it, because :meth:`step` adds its gradient in closed form.
        """
        self._need("attached", "penalty")
        if self.method.penalty_shift is None:
            return torch.zeros(())
        shift = self.method.penalty_shift
        means = [self._penalty_share(m.size) * mean_penalty(m, shift) for m in self.matrices]
        return torch.stack(means).sum()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within: no gradients, and the model holds its masked weights, folded once."""
        self._need("attached", "frozen")
        if self._inside:
            yield
            return
        with torch.no_grad(), self.masked(training=False):
            yield

    @contextmanager
    def masked(self, training: bool) -> Iterator[list[tuple[Joined, torch.Tensor]]]:
        """Within: the model on the masked weights of a training step or of an evaluation; gives
        these forms. The dense weights are back at the end; :meth:`step` and :meth:`frozen` are
        made of it.
        """
        dense = [m.weight.data for m in self.matrices]
        forms = self._make_forms(training)
        self._inside = True
        try:
            _put(forms)
            yield forms
        finally:
            self._inside = False
            for matrix, weight in zip(self.matrices, dense, strict=True):
                matrix.weight.data = weight

    @torch.no_grad()
    def _make_forms(self, training: bool) -> list[tuple[Joined, torch.Tensor]]:
        """Masked weights of all matrices; in training those of small ones joined, where the method
        allows. What is evaluated may be saved, so it has memory of its own."""
        self._update_cuts()
        is_joined = training and self.method.elementwise
        groups = join(self.matrices) if is_joined else keep_apart(self.matrices)
        return [(group, self.method.masked_weight(group.matrix, training)) for group in groups]

    def _update_cuts(self) -> None:
        self.method.update(self.matrices, self.schedule.threshold(self.now))

    def kept_by_matrix(self) -> list[KeptWeights]:
        """What is left of each matrix, by the mask of evaluation at the threshold of now."""
        self._need("attached", "kept_by_matrix")
        if not self._inside:
            self._update_cuts()
        return [
            KeptWeights(m.name, int(self.method.kept_mask(m).count_nonzero()), m.size)
            for m in self.matrices
        ]

    def fold(self) -> None:
        """W becomes M ⊙ W for good (L0's soft values included); the scores are gone."""
        self._need("attached", "fold")
        # Adding 0 makes −0, what a closed gate leaves of a negative weight, a plain zero.
        _put([(joined, form.add_(0.0)) for joined, form in self._make_forms(training=False)])
        self.matrices, self.state = [], "folded"

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Scores by the matrices' names, the learned multipliers, and what density they led to."""
        scores = {m.name: m.scores.detach() for m in self.matrices if m.scores is not None}
        return {
            **scores,
            "multipliers": self.multipliers,
            _DENSITY_KEY: self._density_before_shift,
        }

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """The inverse of :meth:`state_dict`, in place. A checkpoint may lack the density before the
        shift, which is NaN then."""
        self._need("attached", "load_state_dict")
        state = {_DENSITY_KEY: torch.full((1,), math.nan)} | state
        current = self.state_dict()
        if current.keys() != state.keys():
            raise RuntimeError("pruner: the saved scores are not those of these matrices")
        for name, tensor in current.items():
            tensor.copy_(state[name])

    def _need(self, state: str, call: str) -> None:
        if self.state != state:
            raise RuntimeError(f"pruner: {call}() needs state {state!r}, it is {self.state!r}")
