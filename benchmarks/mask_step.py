"""What masks cost: a training step and an evaluation against the dense ones, in the same run.

BERT-base's width, 4 layers, embeddings frozen, 2 threads; ``small`` is the shipped encoder, six
layers of 128, at 16 × 16 tokens with 1 thread, where calls cost as much as numbers do.
``reference`` is how masks are usually written: each matrix sorted on every forward, gradients
through the mask by autograd. All keep 10 % (τ = 0.1 for soft movement), from random scores. A step
is forward, backward, clipping and AdamW; an evaluation is 35 batches (RTE's dev set at batch 8): a
forward on the folded weights, and a 35th of a fold. Our ratios are medians of the ratios within
each round; the reference's, run after them, ratios of medians.
"""

import copy
import statistics
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from _measure import interleaved, samples, show
from torch import nn
from torch.nn.utils import parametrize
from transformers import BertConfig, BertForSequenceClassification

from bermo_ray.models import backbone
from bermo_ray.pruning import masks
from bermo_ray.pruning.pruner import Pruner, prunable_matrices
from bermo_ray.pruning.schedule import Schedule
from bermo_ray.training.malloc import keep_freed_memory
from bermo_ray.trial import L0, Magnitude, Movement, Pruning, SoftMovement

SHAPES = {"8x64": (8, 64), "16x128": (16, 128), "small": (16, 16)}
BATCHES = 35
EVALUATIONS = 35  # rounds: their aim is the narrowest
SMALL_ROUNDS = 60  # each takes a fifth of a second
MOVEMENT = "reference_movement"
SETTINGS: dict[str, Pruning] = {
    "magnitude": Magnitude(initial_density=0.1, final_density=0.1),
    "movement": Movement(initial_density=0.1, final_density=0.1),
    "soft": SoftMovement(initial_threshold=0.1, final_threshold=0.1),
    "l0": L0(),
}


class SortedTop(torch.autograd.Function):
    """Straight-through mask of the 10 % largest values, by a full sort."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        order = values.flatten().sort(descending=True).indices
        mask = torch.zeros_like(values).view(-1)
        mask[order[: int(0.1 * values.numel())]] = 1.0
        return mask.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class ReferenceMask(nn.Module):
    """Parametrization that makes its mask at every access."""

    def __init__(self, method: str, weight: torch.Tensor) -> None:
        super().__init__()
        self.method = method
        if method != "magnitude":
            self.scores = nn.Parameter(torch.randn_like(weight) * 0.01)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        if self.method == "l0":
            soft: torch.Tensor = self.scores
            if self.training:
                noise = torch.rand_like(soft).clamp_(1e-4, 1 - 1e-4)
                soft = (noise.log() - (1 - noise).log() + soft) / masks.BETA
            return weight * (soft.sigmoid() * 1.2 - 0.1).clamp(0, 1)
        ranked = self.scores if self.method == "movement" else weight.detach().abs()
        mask: torch.Tensor = SortedTop.apply(ranked)  # type: ignore[no-untyped-call]
        return weight * mask


class Variant:
    """A model, its optimiser and what wraps its step and its evaluation."""

    def __init__(self, model: Any, settings: Pruning | None, reference: str | None = None) -> None:
        modules = backbone.find_stack(model).modules
        self.model, self.pruner = model, None
        self.masked = list(prunable_matrices(modules).values())
        scores: list[torch.Tensor] = []
        self.penalised: list[torch.Tensor] = []
        if settings is not None:
            self.pruner = Pruner(settings, Schedule.from_settings(settings, 1000, 10))
            self.pruner.attach(modules)
            scores = self.pruner.scores()
            for score in scores:
                score.data.normal_(std=0.01)
        elif reference is not None:
            for name in list(prunable_matrices(modules)):
                path, _, attribute = name.rpartition(".")
                module = modules.get_submodule(path)
                mask = ReferenceMask(reference, getattr(module, attribute))
                parametrize.register_parametrization(module, attribute, mask)
                scores += list(mask.parameters())
            self.penalised = scores if reference == "l0" else []
        score_ids = {id(p) for p in scores}
        weights = [p for p in model.parameters() if p.requires_grad and id(p) not in score_ids]
        self.trained = weights + scores
        # Rates of 0: all variants do the work of an update and keep the same weights.
        self.adam = torch.optim.AdamW(self.trained, lr=0.0, weight_decay=0.0, fused=True)

    def step(self, ids: torch.Tensor, labels: torch.Tensor) -> None:
        with self.pruner.step(500) if self.pruner else nullcontext():
            loss = F.cross_entropy(self.model(ids).logits, labels)
            if self.penalised:
                shift = masks.L0_PENALTY_SHIFT
                loss = (
                    loss
                    + torch.stack([(s + shift).sigmoid().mean() for s in self.penalised]).mean()
                )
            torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)

    def forward(self, ids: torch.Tensor, weights: list[torch.Tensor] | None = None) -> None:
        if weights is not None:
            for parameter, weight in zip(self.masked, weights, strict=True):
                parameter.data = weight
        with torch.no_grad():
            self.model(ids)

    def frozen(self) -> AbstractContextManager[None]:
        return self.pruner.frozen() if self.pruner else nullcontext()

    def folded(self) -> list[torch.Tensor]:
        """The matrices as an evaluation has them."""
        with self.frozen():
            return [parameter.data for parameter in self.masked]

    def fold(self) -> None:
        """Into the model and out again, as an evaluation does."""
        with self.frozen():
            pass


def new_model(config: BertConfig) -> Any:
    """Random weights: speed does not depend on them."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    model.bert.embeddings.requires_grad_(False)
    return model


def batch(shape: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random word pieces and labels."""
    rows, length = SHAPES[shape]
    return torch.randint(0, 1_000, (rows, length)), torch.randint(0, 2, (rows,))


def make_variants(model: Any) -> dict[str, Variant]:
    """A model without masks, and with those of each method."""
    return {"dense": Variant(model, None)} | {n: Variant(model, s) for n, s in SETTINGS.items()}


def measure_small() -> dict[str, list[float]]:
    """Seconds of each variant's steps on the shipped encoder, with one thread."""
    torch.set_num_threads(1)
    model = new_model(BertConfig.from_pretrained(backbone.locate("embedded")))
    model.train()
    ids, labels = batch("small")
    calls = {n: partial(v.step, ids, labels) for n, v in make_variants(model).items()}
    return samples(calls, SMALL_ROUNDS)


def main() -> None:
    """Measures every method at each shape."""
    torch.set_num_threads(2)
    keep_freed_memory()  # as in every training run
    model = new_model(BertConfig(num_hidden_layers=4))
    ours = make_variants(model)
    others = {
        f"reference_{name}": Variant(copy.deepcopy(model), None, name)
        for name in ("magnitude", "movement", "l0")
    }
    results: dict[str, dict[str, list[float]]] = {}  # kind of work -> variant -> seconds per round
    for shape, rounds in (("8x64", 9), ("16x128", 5)):
        ids, labels = batch(shape)
        model.train()
        slow = others if shape == "8x64" else {MOVEMENT: others[MOVEMENT]}
        results[shape] = {}
        for variants, times in ((ours, rounds), (slow, 5)):
            calls = {name: partial(v.step, ids, labels) for name, v in variants.items()}
            results[shape] |= samples(calls, times, warm=False)
    ids, _ = batch("8x64")
    model.eval()
    others[MOVEMENT].model.eval()
    forms = {name: variant.folded() for name, variant in ours.items()}
    forwards = samples(
        {n: partial(v.forward, ids, forms[n]) for n, v in ours.items()}, rounds=EVALUATIONS
    )
    folds = interleaved({n: v.fold for n, v in ours.items()}, rounds=5)
    results["eval_8x64"] = {
        name: [s + folds[name] / BATCHES for s in seconds] for name, seconds in forwards.items()
    } | samples({MOVEMENT: partial(others[MOVEMENT].forward, ids)}, 5, warm=False)
    results["small"] = measure_small()
    ratios = {}
    for kind, measured in results.items():
        dense = measured["dense"]
        for name, seconds in measured.items():
            if name in ours:
                ratio = statistics.median(s / d for s, d in zip(seconds, dense, strict=True))
            else:
                ratio = statistics.median(seconds) / statistics.median(dense)
            ratios[f"{name}_{kind}"] = ratio
    rows = []
    for name in [*ours, *others]:
        row = [name]
        for kind, measured in results.items():
            if name in measured:
                row += [f"{statistics.median(measured[name]) * 1e3:.0f} ms"]
                row += [f"{ratios[f'{name}_{kind}']:.2f}"]
            else:
                row += ["", ""]
        rows.append(row)
    columns = ["", "8x64", "ratio", "16x128", "ratio", "eval 8x64", "ratio", "small", "ratio"]
    ratios = {name: ratio for name, ratio in ratios.items() if not name.startswith("dense")}
    show("Masks: milliseconds per step, and per batch of evaluation", columns, rows, ratios)


if __name__ == "__main__":
    main()
