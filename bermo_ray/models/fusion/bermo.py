"""BERMo's weighted sum of all states (docs/methods.md §1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models.backbone import CallLayer, Stack
from bermo_ray.models.fusion.base import FusionModule, open_gradually

EPSILON = 1e-5  # added to variances


def bermo_mix(
    states: torch.Tensor,
    alpha: torch.Tensor,
    gamma: torch.Tensor | float = 1.0,
    norm: str = "layer",
    weighting: str = "softmax",
    dropout: float = 0.0,
) -> torch.Tensor:
    """γ Σ_j softmax(α)_j · dropout(norm(h_j)) (BERMo, Eq. 1) of states that are all at hand.

    Args:
        states: [n, ..., d]
        alpha: [n]
        gamma: A scalar.
        norm: As in :class:`Bermo`.
        weighting: ``softmax``, or ``raw`` for weights that are α itself.
        dropout: The share of values that is dropped behind the norm.

    Returns:
        The mix, [..., d].
    """
    weights, total = _weights(alpha, weighting), None
    for index, state in enumerate(_normalize(states, norm)):
        total = _add_weighted(total, weights[index], F.dropout(state, dropout))
    if total is None:
        raise ValueError("bermo_mix: got no states, expected one or more")
    return gamma * total


def _weights(alpha: torch.Tensor, weighting: str) -> torch.Tensor:
    return alpha.softmax(0) if weighting == "softmax" else alpha


def _normalize(states: torch.Tensor, norm: str) -> torch.Tensor:
    """norm(h_j) for all j, [n, ..., d], without an affine part."""
    if norm == "none":
        return states
    if norm == "layer":
        return F.layer_norm(states, states.shape[-1:], eps=EPSILON)
    axes = (0, -1) if norm == "stack" else (0,)
    mean = states.mean(axes, keepdim=True)
    variance = states.var(axes, correction=0, keepdim=True)
    return (states - mean) * (variance + EPSILON).rsqrt()


def _add_weighted(
    total: torch.Tensor | None, weight: torch.Tensor, state: torch.Tensor
) -> torch.Tensor:
    """total + weight·state; without gradients in place, so that there is no second buffer."""
    if total is None:
        return weight * state
    if torch.is_grad_enabled():
        return torch.addcmul(total, weight, state)
    return total.addcmul_(weight, state)


class Bermo(FusionModule):
    """ELMo's mix (BERMo, Eq. 1): γ Σ_j softmax(α)_j · dropout(norm(h_j)), j = 0 … L.

    Norms (the paper's figure is lost; ``layer`` is our reading):
    ``layer`` over the width of each state; ``stack`` jointly over (states, width) of a token;
    ``depth`` over the values of a token and feature at all layers; ``none``. No affine part.
    ``depth`` gives exactly 0 at uniform α: the values' deviations from their mean sum to 0.

    Evaluation keeps one to three sums, never all states. In training ``stack`` and ``depth`` keep
    them, because dropout comes after the norm, which needs them all.
    """

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        mixed = settings.mixed_states
        chosen = range(stack.depth + 1) if mixed is None else mixed
        self.alpha_index = {state: index for index, state in enumerate(chosen)}
        self.alpha = nn.Parameter(torch.zeros(len(self.alpha_index)))
        if settings.alpha_init == "xavier":
            nn.init.xavier_uniform_(self.alpha.data[None])  # as a (1, L+1) matrix: ±√(6/(L+2))
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=settings.learn_gamma)
        self._pass: _Pass | None = None

    def remove_layers(self, indices: Sequence[int]) -> None:
        removed = {index + 1 for index in indices}
        kept = [i for i in self.alpha_index if i not in removed]
        if not kept:
            mixed = list(self.alpha_index)
            raise UserError(f"fusion.mixed_states: all of {mixed} go with their layers")
        self.alpha.data = self.alpha.data[[self.alpha_index[i] for i in kept]]
        renumbered = [i - sum(r < i for r in removed) for i in kept]
        self.alpha_index = {state: index for index, state in enumerate(renumbered)}
        if self.settings.mixed_states is not None:
            update = {"mixed_states": tuple(renumbered)}
            self.settings = self.settings.model_copy(update=update)
        super().remove_layers(indices)

    def extra_repr(self) -> str:
        s = self.settings
        return f"mixed_states={list(self.alpha_index)}, norm={s.norm}, weighting={s.weighting}"

    def scalars(self) -> list[nn.Parameter]:
        return [self.alpha, self.gamma]

    def states_read(self) -> tuple[int, ...] | None:
        return tuple(index for index in self.alpha_index if index > 0)

    def _open_alpha(self) -> torch.Tensor:
        """α with what makes a weight 0 where a state is still closed (``opening_share``)."""
        closed = -torch.inf if self.settings.weighting == "softmax" else 0.0
        return open_gradually(self, self.alpha, closed)

    def mixing_weights(self) -> torch.Tensor:
        out = self.alpha.new_zeros(self.depth + 1)
        weights = _weights(self._open_alpha(), self.settings.weighting)
        out[list(self.alpha_index)] = weights.detach()
        return out

    def learned_numbers(self) -> dict[str, Any]:
        numbers = {"alpha": self.alpha.tolist(), "gamma": self.gamma.item()}
        return super().learned_numbers() | numbers

    def on_state(self, index: int, state: torch.Tensor, call_layer: CallLayer) -> torch.Tensor:
        if index == 0:  # a new pass: one that broke off must not leak into it
            alpha = self._open_alpha()
            self._pass = _Pass(alpha, _weights(alpha, self.settings.weighting))
        assert self._pass is not None
        if index in self.alpha_index:
            self._take(self._pass, self.alpha_index[index], state)
        if index < self.depth:
            return state
        fused = self._result(self._pass)
        self._pass = None
        return fused.to(state.dtype)

    def _take(self, now: "_Pass", index: int, state: torch.Tensor) -> None:
        state = state.float()  # under autocast it may have 16 bits, too few for a sum of many
        norm = self.settings.norm
        joint = norm in ("stack", "depth")
        if joint and self.training:
            now.states.append(state)
            return
        if norm == "layer":
            state = _normalize(state, norm)
        dropped = F.dropout(state, self.settings.dropout, self.training)
        now.total = _add_weighted(now.total, now.weights[index], dropped)
        if joint:
            now.moments = _merge_moments(now.moments, index, state, over_width=norm == "stack")

    def _result(self, now: "_Pass") -> torch.Tensor:
        s = self.settings
        if now.states:
            stacked = torch.stack(now.states)  # [n, ..., d]
            return bermo_mix(stacked, now.alpha, self.gamma, s.norm, s.weighting, s.dropout)
        assert now.total is not None  # there is at least one mixed state
        if now.moments is None:
            return self.gamma * now.total
        # Σ w_j (h_j − μ)/σ = (Σ w_j h_j − μ Σ w_j)/σ
        mean, variance = now.moments
        return self.gamma * (now.total - mean * now.weights.sum()) * (variance + EPSILON).rsqrt()


@dataclass
class _Pass:
    """What BERMo keeps between the states of one forward."""

    alpha: torch.Tensor  # [n]
    weights: torch.Tensor  # [n]
    total: torch.Tensor | None = None  # Σ_j w_j · dropout(norm(h_j)) so far, [..., d]
    moments: tuple[torch.Tensor, torch.Tensor] | None = None
    states: list[torch.Tensor] = field(default_factory=list)


def _merge_moments(
    moments: tuple[torch.Tensor, torch.Tensor] | None,
    count: int,
    state: torch.Tensor,
    over_width: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of ``count`` states and one more (Chan et al.): of each feature, [..., d],
    or ``over_width``, [..., 1]. The difference of two large sums would lose its digits."""
    if over_width:
        mean, variance = state.mean(-1, keepdim=True), state.var(-1, correction=0, keepdim=True)
    else:
        mean, variance = state, torch.zeros_like(state)
    if moments is None:
        return mean, variance
    share = 1 / (count + 1)
    gap = mean - moments[0]
    both = moments[1] + (variance - moments[1]) * share + gap.square() * (share * (1 - share))
    return moments[0] + gap * share, both
