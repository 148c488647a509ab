"""Masks: a function first, a thin parametrization round it (methods §2).

A mask is a parametrization of one weight matrix, W ↦ M ⊙ W, with scores S of W's shape. To add a
method: subclass :class:`Mask`, register it in ``METHODS``.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import nn

# The hard concrete distribution's stretch and temperature (l, r, β of methods §2).
LOW, HIGH, BETA = -0.1, 1.1, 2 / 3
CLAMP = 1e-4  # u stays in [1e-4, 1 - 1e-4], so that its logit is finite
# P(M > 0) = σ(S − β·ln(−l/r)): the shift of the L0 penalty.
PENALTY_SHIFT = -BETA * math.log(-LOW / HIGH)


def hard_concrete(scores: torch.Tensor, uniform: torch.Tensor | None = None) -> torch.Tensor:
    """L0's mask, in [0, 1], of the shape of ``scores`` (BERMo, Eqs. 3, 4 and 6, mended).

    With ``uniform`` noise in (0, 1): training; without: the deterministic mask of evaluation.
    Eq. 3's log S is S here (S is already log α), and Eq. 6's 1/β is a slip.
    """
    if uniform is None:
        soft = scores.sigmoid()
    else:
        soft = ((torch.logit(uniform, eps=CLAMP) + scores) / BETA).sigmoid()
    return (soft * (HIGH - LOW) + LOW).clamp(0, 1)


def open_probability(scores: torch.Tensor) -> torch.Tensor:
    """P(M > 0) of the hard concrete mask: what the L0 penalty averages."""
    return (scores + PENALTY_SHIFT).sigmoid()


class Mask(nn.Module, ABC):
    """Parametrization of one matrix: ``forward(W)`` is M ⊙ W."""

    def __init__(self, weight: torch.Tensor, start: float) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.full_like(weight, start))
        self.threshold = 1.0

    @abstractmethod
    def mask(self, training: bool) -> torch.Tensor:
        """M, of W's shape, as training or as evaluation sees it."""

    @abstractmethod
    def penalty(self) -> torch.Tensor:
        """Mean over the matrix of what the loss is charged for."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """M ⊙ W."""
        return self.mask(self.training) * weight

    def extra_repr(self) -> str:
        return f"shape={tuple(self.scores.shape)}, threshold={self.threshold:g}"


class L0(Mask):
    """Louizos et al.'s hard concrete gates, differentiated as they stand."""

    def mask(self, training: bool) -> torch.Tensor:
        noise = torch.rand_like(self.scores) if training else None
        return hard_concrete(self.scores, noise)

    def penalty(self) -> torch.Tensor:
        return open_probability(self.scores).mean()


METHODS: dict[str, type[Mask]] = {"l0": L0}
