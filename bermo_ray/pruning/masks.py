"""Masks: functions first, then the four methods on them (docs/methods.md §2).

A masked matrix is W' = M ⊙ W. A training step runs on W' as if it were the weight; from its
gradient G follow, once per step, those of the weight and of the scores S:

    ∂L/∂W = G ⊙ M,    ∂L/∂S = G ⊙ W  (movement, soft movement: straight-through)
                      ∂L/∂S = G ⊙ W ⊙ dM/dS  (l0)

To add a method: subclass :class:`~bermo_ray.trial.Pruning` with its settings and name it in
``PRUNING_SETTINGS``; subclass :class:`Method` and name it in :data:`METHODS`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bermo_ray import trial as spec

# The hard concrete distribution's stretch and temperature (l, r, β of docs/methods.md §2).
LOW, HIGH, BETA = -0.1, 1.1, 2 / 3
_NOISE_MARGIN = 1e-4  # u stays in [1e-4, 1 - 1e-4], so that its logit is finite
# P(M > 0) = σ(S − β·ln(−l/r)): the shift of the L0 penalty.
L0_PENALTY_SHIFT = -BETA * math.log(-LOW / HIGH)
BLOCK_NUMBERS = 2**20  # 4 MB of float32, a share of a CPU's last cache
_LEAST_SHARE = 0.005  # of a matrix that soft movement never goes below, plus one weight


@dataclass(eq=False)
class Matrix:
    """One weight matrix and what its mask is made of. ``name`` starts with the layer's number."""

    name: str
    weight: torch.Tensor
    scores: torch.Tensor | None = None
    cut: float = -math.inf  # hard masks keep what lies above it,
    ties: torch.Tensor | None = None  # and of what equals it, these flat indices
    soft: torch.Tensor | None = None  # l0: s of the step under way, of the weight's shape

    @property
    def size(self) -> int:
        return self.weight.numel()


def top_cut(values: Sequence[torch.Tensor], keep: int) -> tuple[float, list[torch.Tensor | None]]:
    """The cut above which exactly ``keep`` of all values lie, in one ranking over all tensors.

    Where values tie at the cut, the first of them in order make up the number: their indices in the
    flattened tensors come second. ``keep`` = 0 gives +inf, all of them −inf.
    """
    total, no_ties = sum(v.numel() for v in values), [None] * len(values)
    if not 0 < keep < total:
        return (math.inf if keep <= 0 else -math.inf), list(no_ties)
    flat = torch.cat([v.detach().reshape(-1) for v in values])
    rank = total - keep - 1  # of the largest value that goes, counted upwards
    if flat.device.type == "cpu":
        flat.numpy().partition(rank)  # several times faster than torch's kthvalue
        cut, lowest_kept = float(flat[rank]), float(flat[rank + 1 :].min())
    else:
        cut, lowest_kept = (float(flat.kthvalue(rank + i).values) for i in (1, 2))
    if lowest_kept > cut:
        return cut, list(no_ties)
    missing = keep - sum(int((v > cut).count_nonzero()) for v in values)
    ties: list[torch.Tensor | None] = []
    for value in values:
        tied = (value.detach().reshape(-1) == cut).nonzero().squeeze(1)[:missing]
        missing -= len(tied)
        ties.append(tied if len(tied) else None)
    return cut, ties


def keep_above(
    x: torch.Tensor, values: torch.Tensor, cut: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """``x`` where ``values`` are above the cut, else 0.

    One pass and no mask in memory: it is what torch's relu does backwards.
    """
    if out is None:
        return torch.ops.aten.threshold_backward(x, values, cut)
    return torch.ops.aten.threshold_backward(x, values, cut, grad_input=out)


def hard_concrete(scores: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
    """L0's mask, in [0, 1], of the shape of ``scores`` (BERMo, Eqs. 3, 4 and 6, mended).

    With uniform ``noise`` in (0, 1): training; without: the deterministic mask of evaluation.
    Eq. 3's log S is S here (S is already log α), and Eq. 6's 1/β is a slip.
    """
    return _stretch(scores.sigmoid() if noise is None else _concrete(scores, noise.clone()))


def _concrete(scores: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """s = σ((ln u − ln(1−u) + S)/β), in the noise's memory."""
    torch.logit(noise, eps=_NOISE_MARGIN, out=noise)
    return noise.add_(scores).div_(BETA).sigmoid_()


def _stretch(soft: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """clamp(s(r − l) + l, 0, 1)."""
    return torch.mul(soft, HIGH - LOW, out=out).add_(LOW).clamp_(0, 1)


def random_like(x: torch.Tensor) -> torch.Tensor:
    """What :func:`uniform` noise is made of, decided by torch's seed: 16 random bits per number.

    On CPUs torch draws one number at a time; numpy's 64 bits make four, in a fifth of the time.
    Other devices draw it as it is.
    """
    if x.device.type != "cpu":
        return torch.rand_like(x)
    random = np.random.Generator(np.random.SFC64(int(torch.randint(2**62, ()))))
    words = random.integers(2**64 - 1, size=-(-x.numel() // 4), dtype=np.uint64, endpoint=True)
    return torch.from_numpy(words.view(np.int16)[: x.numel()]).view(x.shape)


def uniform(random: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Bits k to numbers (k + ½)/2¹⁶; noise that is uniform already stays as it is."""
    if random.is_floating_point():
        return random if out is None else out.copy_(random)
    return torch.mul(random, 2.0**-16, out=out).add_(0.5 + 2.0**-17)


def blocks(*tensors: torch.Tensor, size: int = BLOCK_NUMBERS) -> Iterator[tuple[torch.Tensor, ...]]:
    """The tensors, all of one shape, as flat pieces that a CPU's cache holds: a chain of cheap
    operations is bound by memory otherwise. Other devices get them whole."""
    if tensors[0].device.type != "cpu" or not all(t.is_contiguous() for t in tensors):
        yield tensors
        return
    yield from zip(*(t.view(-1).split(size) for t in tensors), strict=True)


class Method(ABC):
    """How the masks of matrices come about.

    A subclass says by its annotation of ``settings`` which type of settings it takes; it keeps no
    state besides them.
    """

    settings: spec.Pruning
    initial_score: float | None = 0.0  # None: the method has no scores
    penalty_shift: float | None = None  # R is the mean of σ(S + shift); None: it has no penalty
    noisy = False  # whether each worker of a run draws other masks
    elementwise = False  # whether a weight's mask depends on its own score alone

    def __init__(self, settings: spec.Pruning) -> None:
        self.settings = settings

    @abstractmethod
    def update(self, matrices: Sequence[Matrix], threshold: float) -> None:
        """Finds the cuts of the masks, as scores and weights are now, at θ = ``threshold``."""

    @abstractmethod
    def masked_weight(self, matrix: Matrix, training: bool) -> torch.Tensor:
        """W', of the weight's shape, in new memory."""

    @abstractmethod
    def mask_source(self, matrix: Matrix, dense: torch.Tensor) -> torch.Tensor:
        """What a step's mask is made of: the ranked values, or l0's s; of the weight's shape."""

    @abstractmethod
    def backward_block(
        self, w: torch.Tensor, g: torch.Tensor, out: torch.Tensor, source: torch.Tensor, cut: float
    ) -> None:
        """The chain rule on a flat block: G in ``g`` becomes ∂L/∂W, ``out`` becomes ∂L/∂S."""

    @abstractmethod
    def kept_mask(self, matrix: Matrix) -> torch.Tensor:
        """Where the mask of evaluation is above 0, as booleans of the weight's shape."""

    def score_threshold(self, threshold: float) -> float | None:
        """The score above which evaluation keeps a weight; None where ranks decide."""
        return None

    def backward(
        self,
        matrix: Matrix,
        dense: torch.Tensor,
        grad: torch.Tensor,
        out: torch.Tensor,
        penalty_slope: float = 0.0,
    ) -> None:
        """Turns G in ``grad`` into the weight's gradient; ``out`` becomes the scores', the
        penalty's ``penalty_slope``·σ'(S + shift) included. All are of the weight's shape."""
        tied = None if matrix.ties is None else grad.flatten()[matrix.ties]
        source = self.mask_source(matrix, dense)
        scores = source if matrix.scores is None else matrix.scores.detach()
        for w, g, o, block, s in blocks(dense, grad, out, source, scores):
            self.backward_block(w, g, o, block, matrix.cut)
            self._add_penalty(o, s, penalty_slope)
        if tied is not None:
            grad.view(-1)[matrix.ties] = tied
        matrix.soft = None

    def _add_penalty(self, out: torch.Tensor, scores: torch.Tensor, slope: float) -> None:
        """out += slope·σ'(S + shift), σ' = σ(1 − σ)."""
        if slope and self.penalty_shift is not None:
            p = (scores + self.penalty_shift).sigmoid_() if self.penalty_shift else scores.sigmoid()
            slopes = p.new_tensor(slope).expand_as(p)
            out.add_(torch.ops.aten.sigmoid_backward(slopes, p, grad_input=p))


class _Hard(Method):
    """Masks of 0 and 1: kept is what ranks above the cut."""

    def mask_source(self, matrix: Matrix, dense: torch.Tensor) -> torch.Tensor:
        assert matrix.scores is not None
        return matrix.scores.detach()

    def masked_weight(self, matrix: Matrix, training: bool) -> torch.Tensor:
        dense = matrix.weight.detach()
        out = keep_above(dense, self.mask_source(matrix, dense), matrix.cut)
        if matrix.ties is not None:
            out.view(-1)[matrix.ties] = dense.flatten()[matrix.ties]
        return out

    def backward_block(
        self, w: torch.Tensor, g: torch.Tensor, out: torch.Tensor, source: torch.Tensor, cut: float
    ) -> None:
        if self.initial_score is not None:
            torch.mul(g, w, out=out)
        keep_above(g, source, cut, out=g)

    def kept_mask(self, matrix: Matrix) -> torch.Tensor:
        kept = self.mask_source(matrix, matrix.weight.detach()) > matrix.cut
        if matrix.ties is not None:
            kept.view(-1)[matrix.ties] = True
        return kept


class MovementMask(_Hard):
    """The ``int(v·n)`` largest scores of each matrix, or of all (Sanh et al.)."""

    settings: spec.Movement | spec.Magnitude

    def update(self, matrices: Sequence[Matrix], threshold: float) -> None:
        groups = [matrices] if self.settings.scope == "global" else [[m] for m in matrices]
        for group in groups:
            keep = int(threshold * sum(m.size for m in group))
            cut, ties = top_cut([self.mask_source(m, m.weight.detach()) for m in group], keep)
            for matrix, indices in zip(group, ties, strict=True):
                matrix.cut, matrix.ties = cut, indices


class MagnitudeMask(MovementMask):
    """The ``int(v·n)`` largest weights by absolute value; no scores."""

    initial_score = None

    def mask_source(self, matrix: Matrix, dense: torch.Tensor) -> torch.Tensor:
        return dense.abs()


class SoftMovementMask(_Hard):
    """σ(S) > τ, but never fewer than ``int(0.005·n) + 1`` weights of a matrix."""

    settings: spec.SoftMovement
    penalty_shift = 0.0

    def score_threshold(self, threshold: float) -> float:
        return math.log(threshold / (1 - threshold)) if threshold > 0 else -math.inf

    def update(self, matrices: Sequence[Matrix], threshold: float) -> None:
        cut = self.score_threshold(threshold)
        for matrix in matrices:
            scores = self.mask_source(matrix, matrix.weight)
            least = int(_LEAST_SHARE * matrix.size) + 1
            matrix.cut, matrix.ties = cut, None
            if not _as_many_above(scores, cut, least):
                matrix.cut, (matrix.ties,) = top_cut([scores], least)


def _as_many_above(values: torch.Tensor, cut: float, least: int) -> bool:
    """Whether at least so many values lie above the cut; counts no further than it must."""
    count = 0
    for (block,) in blocks(values, size=BLOCK_NUMBERS // 16):
        count += int((block > cut).count_nonzero())
        if count >= least:
            return True
    return False


class L0Mask(Method):
    """Louizos et al.'s hard concrete gates, differentiated as they stand."""

    settings: spec.L0
    penalty_shift = L0_PENALTY_SHIFT
    noisy = elementwise = True

    def __init__(self, settings: spec.L0) -> None:
        super().__init__(settings)
        self.initial_score = settings.initial_score

    def score_threshold(self, threshold: float) -> float:
        return math.log(-LOW / HIGH)  # σ(S)(r − l) + l = 0

    def update(self, matrices: Sequence[Matrix], threshold: float) -> None:
        """The scores alone decide."""

    def masked_weight(self, matrix: Matrix, training: bool) -> torch.Tensor:
        assert matrix.scores is not None
        scores = matrix.scores.detach()
        random = random_like(scores) if training else scores
        soft, out = torch.empty_like(scores), torch.empty_like(scores)
        for r, s, o, score, w in blocks(random, soft, out, scores, matrix.weight.detach()):
            _concrete(score, uniform(r, s)) if training else torch.sigmoid(score, out=s)
            _stretch(s, o).mul_(w)
        matrix.soft = soft if training else None
        return out

    def mask_source(self, matrix: Matrix, dense: torch.Tensor) -> torch.Tensor:
        assert matrix.soft is not None
        return matrix.soft

    def backward_block(
        self, w: torch.Tensor, g: torch.Tensor, out: torch.Tensor, source: torch.Tensor, cut: float
    ) -> None:
        # dM/dS = (r−l)/β · s(1−s) where M is not clamped, else 0 (Eq. 5 with 0 ≤ Z ≤ 1).
        raw = (source * (HIGH - LOW)).add_(LOW)
        torch.mul(g, w, out=out).mul_((HIGH - LOW) / BETA)
        torch.ops.aten.hardtanh_backward(out, raw, 0.0, 1.0, grad_input=out)
        torch.ops.aten.sigmoid_backward(out, source, grad_input=out)
        g.mul_(raw.clamp_(0, 1))

    def kept_mask(self, matrix: Matrix) -> torch.Tensor:
        assert matrix.scores is not None
        return hard_concrete(matrix.scores.detach()) > 0


METHODS: dict[str, type[Method]] = {
    "magnitude": MagnitudeMask,
    "movement": MovementMask,
    "soft_movement": SoftMovementMask,
    "l0": L0Mask,
}


def mean_penalty(matrix: Matrix, shift: float) -> torch.Tensor:
    """Mean of σ(S + shift), a scalar: ``l1`` with shift 0, ``l0``'s P(M > 0) with
    :data:`L0_PENALTY_SHIFT`."""
    assert matrix.scores is not None
    return (matrix.scores + shift).sigmoid().mean()
