"""Trial -> module: the stock model with the task's head, fewer layers, and a fusion on it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from bermo_ray import trial as spec
from bermo_ray.errors import UserError
from bermo_ray.models import backbone, fusion, heads, layer_drop
from bermo_ray.tasks.task import Task
from bermo_ray.trial import Trial


@dataclass
class Assembled:
    """A model ready to train: ``model`` is the stock one, with ``fusion`` as its submodule."""

    model: Any
    stack: backbone.Stack
    fusion: fusion.Fusion
    layers: list[int]  # which of the backbone's layers are here, counted from 1
    depth: int  # how many layers the backbone has
    whole: int  # parameters of all of them
    going: list[int] = field(default_factory=list)  # in this trial, the first to go first

    @property
    def dropped(self) -> list[int]:
        """The layers that are gone, rising."""
        return [i for i in range(1, self.depth + 1) if i not in self.layers]


# A model whose layers are all there -> a score for each: contribution needs data.
Similarity = Callable[[Assembled], layer_drop.Scores]


def build(
    trial: Trial, task: Task, similarity: Similarity | None = None, going: list[int] | None = None
) -> Assembled:
    """The trial's model, initialised by its seed alone.

    ``similarity`` scores the layers for strategy ``contribution``; ``going``, of a checkpoint,
    says which layers go without looking again.

    Raises:
        UserError: layers, fusion or backbone are not what the trial says.
    """
    torch.manual_seed(trial.seed)
    model = heads.load(trial.backbone, task)
    stack = backbone.stack(model)
    whole = sum(p.numel() for p in stack.modules.parameters())
    fused = fusion.attach(model, stack, trial.fusion)
    every = list(range(1, stack.depth + 1))
    built = Assembled(model, stack, fused, every, len(every), whole)
    adapt(built, trial, similarity, going)
    return built


def adapt(
    built: Assembled, trial: Trial, similarity: Similarity | None, going: list[int] | None
) -> None:
    """Makes a whole model the trial's: layers that go at once go, what is frozen is frozen."""
    if trial.layer_drop is not None:
        _choose(built, trial.layer_drop, similarity, going)
    if trial.mode == "features":
        base = built.model.base_model
        pooler = getattr(base, "pooler", None)
        for parameter in base.parameters():
            parameter.requires_grad_(False)
        if pooler is not None:  # the pooler belongs to the head: untrained in most checkpoints
            for parameter in pooler.parameters():
                parameter.requires_grad_(True)


def _choose(
    built: Assembled,
    drop: spec.LayerDrop,
    similarity: Similarity | None,
    going: list[int] | None,
) -> None:
    here = len(built.layers)
    if going is None:
        scores = None
        if drop.strategy == "contribution":
            layer_drop.check(drop, here)
            if similarity is None:
                raise ValueError("contribution needs data to see how much each layer does")
            scores = similarity(built)
        elif drop.strategy in layer_drop.SCORED:
            scores = layer_drop.weight_scores(built.stack)[drop.strategy]
        going = [built.layers[i - 1] for i in layer_drop.order(drop, here, scores)]
    if refused := layer_drop.problem(built.stack.base.config, going):
        raise UserError(refused)
    built.going = going
    shrink(built, layer_drop.due(drop, going, 0))


def shrink(built: Assembled, gone: Iterable[int]) -> None:
    """Takes these layers out of model and fusion; those already gone stay gone.

    What the fusion has for the layers that stay (BERMo's α) is kept.
    """
    places = [built.layers.index(layer) for layer in gone if layer in built.layers]
    if places:
        layer_drop.remove(built.stack, places)
        built.fusion.drop(sorted(places))
        built.layers = [n for i, n in enumerate(built.layers) if i not in places]


def problems(trial: Trial, task: Task, here: int | None = None) -> list[str]:
    """What keeps the trial's model from being built, a line each; the weights are loaded once.

    ``here``: how many layers the model has that training starts from, if not all.
    """
    try:
        config = backbone.config(trial.backbone)
        backbone.tokenizer(trial.backbone)
        count = backbone.stack(heads.load(trial.backbone, task)).depth
    except UserError as error:
        return list(error.problems)
    found: list[str] = []
    positions = getattr(config, "max_position_embeddings", None) or 0
    if config.model_type in ("roberta", "xlm-roberta"):
        positions -= config.pad_token_id + 1  # it counts positions from behind the padding's
    if 0 < positions < trial.data.max_length:
        asked = trial.data.max_length
        found.append(f"data.max_length: got {asked}, {trial.backbone} has {positions} positions")
    if trial.layer_drop is not None:
        try:
            layer_drop.check(trial.layer_drop, here or count)
            if here is None and trial.layer_drop.strategy in (*layer_drop.POSITIONAL, "explicit"):
                gone = layer_drop.order(trial.layer_drop, count)
                refused = layer_drop.problem(config, gone)
                found += [refused] if refused else []
                found += _unmixed(trial.fusion, gone)
        except UserError as error:
            found += error.problems
    return found + fusion.problems(trial.fusion, count)


def _unmixed(settings: spec.Fusion, gone: list[int]) -> list[str]:
    if settings.layers is not None and set(settings.layers) <= set(gone):
        return [f"fusion.layers: all of {list(settings.layers)} go with the layers dropped"]
    return []
