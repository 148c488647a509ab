"""Fusion: from the states of all layers to one (methods §1).

A fusion is fed the states one by one as the encoder makes them, so inference need not keep L+1 of
them. To add one: subclass :class:`Fusion` with its one method, and name it in ``FUSIONS``.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bermo_ray import trial as spec
from bermo_ray.errors import UserError, unknown
from bermo_ray.models.backbone import Stack, listen

Call = Callable[[nn.Module, torch.Tensor], torch.Tensor]
Tape = Callable[[int, torch.Tensor], torch.Tensor]
EPSILON = 1e-5


class Fusion(nn.Module, ABC):
    """Takes h_0 (embeddings), h_1 … h_L in order, each (…, width); ``depth`` is L.

    ``progress``, from 0 to 1, is how much of training is done; 1 outside of training runs.
    """

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__()
        self.settings = settings
        self.depth = stack.depth
        self.progress = 1.0
        self.tape: Tape | None = None  # listens in on the states, or puts others in their place

    # Whether a token's result depends on that token's states alone.
    tokenwise = True

    def hear(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        """What the hooks call: :meth:`feed`, with the tape in between if there is one."""
        return self.feed(index, state if self.tape is None else self.tape(index, state), call)

    @abstractmethod
    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        """Takes h_index and gives what goes on: to layer index+1, or, for h_L, to the head.

        ``call(layer, state)`` runs a layer of the backbone's kind; only with h_L.
        """

    def needs(self) -> tuple[int, ...] | None:
        """Which of h_1 … h_L it reads, if those can be known before it learns; None: they can't."""
        return tuple(range(1, self.depth + 1))

    def drop(self, places: Sequence[int]) -> None:
        """Layers at these places (rising, from 0) leave the encoder: h_{place+1} will not come any
        more. What a fusion holds for the states that stay is kept, with its parameters' identity.
        """
        self.depth -= len(places)

    def scalars(self) -> list[nn.Parameter]:
        """Parameters that train at the mask rate without decay (BERMo §4: 1e-2)."""
        return []

    def weights(self) -> torch.Tensor | None:
        """How much each state counts, h_0 first, where the fusion has such numbers."""
        return None

    def numbers(self) -> dict[str, Any]:
        """What it has learned, as plain numbers: ``mixing``; BERMo's ``alpha`` and ``gamma``."""
        weights = self.weights()
        return {} if weights is None else {"mixing": weights.tolist()}


class Last(Fusion):
    """Plain BERT: h_L."""

    def needs(self) -> tuple[int, ...] | None:
        return (self.depth,)

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        return state


class Mean(Fusion):
    """The mean of h_1 … h_L."""

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        if index == 1:
            self._sum = state
        elif index > 1:
            self._sum = self._sum + state
        return self.__dict__.pop("_sum") / self.depth if index == self.depth else state


class Concat(Fusion):
    """Σ_n W_n h_n, n = 1 … L: a linear map of the concatenated states, without bias; L·d²."""

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        bound = 1 / math.sqrt(stack.depth * stack.width)  # of nn.Linear(L·d, d)
        shape = (stack.depth, stack.width, stack.width)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

    def drop(self, places: Sequence[int]) -> None:
        self.weight.data = _without(self.weight.data, places)
        super().drop(places)

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        if index == 0:
            return state
        term = F.linear(state, self.weight[index - 1])
        self._sum: torch.Tensor = term if index == 1 else self._sum + term
        return self.__dict__.pop("_sum") if index == self.depth else state


class _Bottleneck(nn.Module):
    """f(x) = W·LN(gelu(Ux)), U: d → d/2 with bias, W: d/2 → d without."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width // 2)
        self.norm = nn.LayerNorm(width // 2)
        self.outer = nn.Linear(width // 2, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.norm(F.gelu(self.inner(x))))


class DepthWiseAttention(Fusion):
    """DWAtt: h_L + Σ_n softmax_n(q·k_n) v_n, for each token (depth-wise attention, §3).

    k_n = W^K p_n with p_n ∈ R^24 drawn once; v_n = LN_n(f_n(h_n)); q = 1 + elu(h_L + f_Q(h_L)).
    No 1/√d and no dropout; values are not shared between layers.
    """

    POSITION = 24
    positions: torch.Tensor
    seen: torch.Tensor

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        width = stack.width
        self.values = nn.ModuleList(_Bottleneck(width) for _ in range(stack.depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(stack.depth))
        self.query = _Bottleneck(width)
        self.key = nn.Linear(self.POSITION, width, bias=False)
        self.register_buffer("positions", torch.randn(stack.depth, self.POSITION))
        # Attention over the tokens evaluated since evaluation began: a sum for each layer.
        self.register_buffer("seen", torch.zeros(stack.depth), persistent=False)

    def drop(self, places: Sequence[int]) -> None:
        for place in reversed(places):
            del self.values[place], self.norms[place]
        self.positions = _without(self.positions, places)
        self.seen = _without(self.seen, places)
        super().drop(places)

    def train(self, mode: bool = True) -> "DepthWiseAttention":
        if self.training and not mode:
            self.seen.zero_()
        return super().train(mode)

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        if index == 0:
            self._values: list[torch.Tensor] = []
            return state
        self._values.append(self.norms[index - 1](self.values[index - 1](state)))
        if index < self.depth:
            return state
        query = 1 + F.elu(state + self.query(state))
        share = (query @ self.key(self.positions).T).softmax(-1)  # (…, L)
        if not self.training:
            self.seen += share.detach().flatten(0, -2).sum(0).to(self.seen.dtype)
        values = torch.stack(self.__dict__.pop("_values"), dim=-2)  # (…, L, d)
        return state + (share.unsqueeze(-2) @ values).squeeze(-2)

    def weights(self) -> torch.Tensor | None:
        """Mean attention over all tokens of the newest evaluation; h_0 has none."""
        total = self.seen.sum().clamp(min=1e-12)
        return F.pad(self.seen / total, (1, 0))


class ExtraLayers(Fusion):
    """New Transformer layers of the backbone's own kind on h_L: 1 up to 12 layers, 2 above."""

    tokenwise = False

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        self.layers = nn.ModuleList(
            _fresh(stack.modules[-1], stack.base) for _ in range(self._count())
        )

    def _count(self) -> int:
        return 1 if self.depth <= 12 else 2

    def drop(self, places: Sequence[int]) -> None:
        super().drop(places)
        del self.layers[self._count() :]

    def needs(self) -> tuple[int, ...] | None:
        return (self.depth,)

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        if index == self.depth:
            for layer in self.layers:
                state = call(layer, state)
        return state


def _fresh(layer: nn.Module, base: Any) -> nn.Module:
    """A layer like this one with weights as the family initialises them; hooks are not copied."""
    new = copy.deepcopy(layer)
    for module in new.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        for parameter in module.parameters(recurse=False):
            parameter.__dict__.pop("_is_hf_initialized", None)
        base._init_weights(module)
    return new


class Bermo(Fusion):
    """ELMo's mix (BERMo, Eq. 1): γ Σ_j softmax(α)_j · dropout(norm(h_j)), j = 0 … L.

    Norms (the paper's figure is lost; ``layer`` is our reading):
    ``layer`` over the width of each state; ``stack`` jointly over (layers, width) of a token;
    ``depth`` over the values of a token and feature at all layers; ``none``. No affine part.
    ``depth`` gives exactly 0 at uniform α: the values' deviations from their mean sum to 0.

    Evaluation keeps one to three sums, never all states. In training ``stack`` and ``depth`` keep
    them, because dropout comes after the norm, which needs them all.
    """

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        chosen = range(stack.depth + 1) if settings.layers is None else settings.layers
        self.positions = {index: place for place, index in enumerate(chosen)}
        self.alpha = nn.Parameter(torch.zeros(len(self.positions)))
        if settings.start == "xavier":
            nn.init.xavier_uniform_(self.alpha.data[None])  # as a (1, L+1) matrix: ±√(6/(L+2))
        self.gamma = nn.Parameter(torch.ones(()), requires_grad=settings.scale)
        self._pass: _Pass | None = None

    def drop(self, places: Sequence[int]) -> None:
        gone = {place + 1 for place in places}
        stay = [i for i in self.positions if i not in gone]
        if not stay:
            raise UserError(f"fusion.layers: all of {list(self.positions)} go with their layers")
        self.alpha.data = self.alpha.data[[self.positions[i] for i in stay]]
        now = [i - sum(g < i for g in gone) for i in stay]  # counted anew
        self.positions = {index: place for place, index in enumerate(now)}
        if self.settings.layers is not None:
            self.settings = self.settings.model_copy(update={"layers": tuple(now)})
        super().drop(places)

    def extra_repr(self) -> str:
        s = self.settings
        return f"layers={list(self.positions)}, norm={s.norm}, weights={s.weights}"

    def scalars(self) -> list[nn.Parameter]:
        return [self.alpha, self.gamma]

    def needs(self) -> tuple[int, ...] | None:
        return tuple(index for index in self.positions if index > 0)

    def mix(self) -> torch.Tensor:
        """The weight of each chosen state, without γ: softmax(α), or α itself if raw.

        While skip connections open (``settings.opening``), those still closed weigh 0.
        """
        softmax = self.settings.weights == "softmax"
        alpha = _opened(self, self.alpha, -torch.inf if softmax else 0.0)
        return alpha.softmax(0) if softmax else alpha

    def weights(self) -> torch.Tensor:
        out = self.alpha.new_zeros(self.depth + 1)
        out[list(self.positions)] = self.mix().detach()
        return out

    def numbers(self) -> dict[str, Any]:
        return super().numbers() | {"alpha": self.alpha.tolist(), "gamma": self.gamma.item()}

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        if index == 0:  # a new pass: one that broke off must not leak into it
            self._pass = _Pass(self.mix())
        assert self._pass is not None
        if index in self.positions:
            self._take(self._pass, self.positions[index], state)
        if index < self.depth:
            return state
        fused = self._result(self._pass)
        self._pass = None
        return fused.to(state.dtype)

    def _take(self, now: "_Pass", place: int, state: torch.Tensor) -> None:
        norm = self.settings.norm
        if norm in ("layer", "none"):
            if norm == "layer":
                state = F.layer_norm(state, state.shape[-1:], eps=EPSILON)
            self._accumulate(now, place, state)
        elif self.training:
            now.states.append(state)
        else:
            self._accumulate(now, place, state)
            now.moments = _merged(now.moments, place, state, joint=norm == "stack")

    def _accumulate(self, now: "_Pass", place: int, state: torch.Tensor) -> None:
        weight = now.mix[place]
        state = F.dropout(state, self.settings.dropout, self.training)
        if now.sum is None:
            now.sum = weight * state
        elif torch.is_grad_enabled():
            now.sum = torch.addcmul(now.sum, weight, state)
        else:  # no second buffer at inference
            now.sum.addcmul_(weight, state)

    def _result(self, now: "_Pass") -> torch.Tensor:
        if now.states:
            stacked = torch.stack(now.states)  # (layers, …, width)
            axes = (0, -1) if self.settings.norm == "stack" else (0,)
            mean = stacked.mean(axes, keepdim=True)
            variance = stacked.var(axes, correction=0, keepdim=True)
            for place, state in enumerate((stacked - mean) * (variance + EPSILON).rsqrt()):
                self._accumulate(now, place, state)
        assert now.sum is not None  # there is at least one chosen state
        if now.moments is None:
            return self.gamma * now.sum
        # Σ w_j (h_j − μ)/σ = (Σ w_j h_j − μ Σ w_j)/σ
        mean, variance = now.moments
        return self.gamma * (now.sum - mean * now.mix.sum()) * (variance + EPSILON).rsqrt()


@dataclass
class _Pass:
    """What BERMo keeps between the states of one forward."""

    mix: torch.Tensor
    sum: torch.Tensor | None = None
    moments: tuple[torch.Tensor, torch.Tensor] | None = None
    states: list[torch.Tensor] = field(default_factory=list)


def _merged(
    moments: tuple[torch.Tensor, torch.Tensor] | None, count: int, state: torch.Tensor, joint: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of ``count`` states and one more (Chan et al.), of a token's features one
    by one, or ``joint`` over them. The difference of two large sums would lose its digits."""
    if joint:
        mean, variance = state.mean(-1, keepdim=True), state.var(-1, correction=0, keepdim=True)
    else:
        mean, variance = state, torch.zeros_like(state)
    if moments is None:
        return mean, variance
    share = 1 / (count + 1)
    gap = mean - moments[0]
    both = moments[1] + (variance - moments[1]) * share + gap.square() * (share * (1 - share))
    return moments[0] + gap * share, both


class EveryLayer(Fusion):
    """BERMo's future work: each layer's input, and the head's, is a mix of all states before it.

    x_k = Σ_{j ≤ k} A_kj h_j, (L+1)(L+2)/2 scalars. A starts as the identity, so that a pretrained
    encoder starts as it was; raw weights, because a softmax can't be the identity.
    """

    def __init__(self, settings: spec.Fusion, stack: Stack) -> None:
        super().__init__(settings, stack)
        rows = [torch.zeros(k + 1) for k in range(stack.depth + 1)]
        for row in rows:
            row[-1] = 1.0
        self.mixes = nn.ParameterList(nn.Parameter(row) for row in rows)

    def drop(self, places: Sequence[int]) -> None:
        """Layer g turns into the identity: h_g becomes its input, x_{g−1} = Σ A_{g−1,j} h_j."""
        for place in reversed(places):
            own = self.mixes[place].data
            for row in self.mixes[place + 1 :]:
                weight, rest = row.data[place + 1], _without(row.data, [place + 1])
                rest[: place + 1] += weight * own
                row.data = rest
            kept = [row for i, row in enumerate(self.mixes) if i != place]
            self.mixes = nn.ParameterList(kept)
        super().drop(places)

    def scalars(self) -> list[nn.Parameter]:
        return list(self.mixes)

    def needs(self) -> tuple[int, ...] | None:
        return None  # what a layer gives changes as the mix of its inputs does

    def weights(self) -> torch.Tensor:
        """Of the head's input, the last row of A."""
        return self.mixes[-1].detach()

    def feed(self, index: int, state: torch.Tensor, call: Call) -> torch.Tensor:
        if index == 0:
            self._states: list[torch.Tensor] = []
        self._states.append(state)
        mix = _opened(self, self.mixes[index], 0.0)
        out = mix[index] * state
        for weight, earlier in zip(mix[:-1], self._states, strict=False):
            out = torch.addcmul(out, weight, earlier)
        if index == self.depth:
            self._states = []
        return out.to(state.dtype)


def _without(rows: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    return rows[[i for i in range(len(rows)) if i not in places]]


def _opened(fusion: Fusion, weights: torch.Tensor, closed: float) -> torch.Tensor:
    """The weights with ``closed`` where a state is still shut: they open one by one from the last
    to the first over the share ``settings.opening`` of training; the last is always open."""
    opening, count = fusion.settings.opening, len(weights)
    if fusion.progress >= opening:
        return weights
    shut = count - 1 - math.floor(fusion.progress / opening * (count - 1))
    return weights.masked_fill(torch.arange(count, device=weights.device) < shut, closed)


FUSIONS: dict[str, type[Fusion]] = {
    "last": Last,
    "bermo": Bermo,
    "mean": Mean,
    "concat": Concat,
    "dwatt": DepthWiseAttention,
    "extra_layers": ExtraLayers,
    "every_layer": EveryLayer,
}


def problems(settings: spec.Fusion, depth: int) -> list[str]:
    """What is wrong with the settings for an encoder of that many layers, a line each."""
    found = []
    if settings.name not in FUSIONS:
        found.append(unknown("fusion", settings.name, FUSIONS))
    if settings.layers is not None:
        if outside := [i for i in settings.layers if not 0 <= i <= depth]:
            found.append(f"fusion.layers: got {outside[0]}, expected 0 <= layer <= {depth}")
        if not settings.layers or list(settings.layers) != sorted(set(settings.layers)):
            found.append("fusion.layers: expected layers in rising order, each once")
    return found


def attach(model: nn.Module, stack: Stack, settings: spec.Fusion) -> Fusion:
    """Puts a fusion on the model as its submodule ``fusion``, fed by hooks on the layers.

    What the last layer gives is replaced by the fused state: pooler and head stay as they are.
    """
    if found := problems(settings, stack.depth):
        raise UserError(*found)
    fusion = FUSIONS[settings.name](settings, stack)
    model.add_module("fusion", fusion)
    listen(stack, fusion.hear)
    return fusion
