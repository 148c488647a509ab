"""Trial: everything that decides what one training run computes, frozen and checked.

A Trial says *what* is trained; where it runs (workers, GPUs, storage) is the study's business, so
the same Trial gives the same numbers on a laptop and on a cluster at the same world size.
"""

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from bermo_ray.data_section import Data as Data
from bermo_ray.data_section import Section
from bermo_ray.data_section import UserData as UserData
from bermo_ray.errors import UserError, unknown


class Fusion(Section):
    """How all layers' states become one (docs/methods.md §1); switches other than ``name`` are
    BERMo's (``opening_share`` also ``every_layer``'s)."""

    name: str = "last"
    norm: Literal["layer", "stack", "depth", "none"] = "layer"
    dropout: float = Field(0.1, ge=0, lt=1)
    weighting: Literal["softmax", "raw"] = Field(
        "softmax", description="how α becomes weights: softmax(α), or α itself"
    )
    learn_gamma: bool = Field(True, description="False fixes γ at 1")
    alpha_init: Literal["xavier", "zeros"] = "xavier"
    mixed_states: tuple[int, ...] | None = Field(
        None, description="indices of the states that are mixed, 0 = embeddings; None: all"
    )
    opening_share: float = Field(
        0.0, ge=0, le=1, description="share of training in which skip connections open one by one"
    )


class LayerDrop(Section):
    """Which layers are dropped (docs/methods.md §3), before training or while it runs; layers are
    counted from 1."""

    strategy: str = "top"
    count: int = Field(0, ge=0)
    dropped_layers: tuple[int, ...] | None = Field(None, description="for strategy 'explicit'")
    threshold: float | None = Field(
        None, gt=-1, lt=1, description="contribution: drop layers more similar than this, not K"
    )
    epochs_per_layer: int | None = Field(
        None, ge=1, description="gradual: one layer is dropped each time so many epochs have passed"
    )

    @model_validator(mode="after")
    def _settings_fit_the_strategy(self) -> Self:
        layers = self.dropped_layers
        if (self.strategy == "explicit") != (layers is not None):
            raise ValueError("strategy 'explicit' and a list of dropped_layers go together")
        if layers is not None and len(set(layers)) != len(layers):
            raise ValueError(f"a layer is named twice in {list(layers)}")
        if self.threshold is not None:
            if self.strategy != "contribution":
                raise ValueError(f"threshold is for strategy 'contribution', not {self.strategy}")
            if self.count:
                raise ValueError("count and threshold both say how many layers go: give one")
            if self.epochs_per_layer is not None:
                raise ValueError(
                    "epochs_per_layer needs a count of layers or their list, not a threshold"
                )
        return self


class Pruning(Section):
    """What every pruning method has; a method's own settings are a subclass in
    :data:`PRUNING_SETTINGS`, told apart by ``method`` (docs/methods.md §2)."""

    method: str
    flat_start: int = Field(
        1, ge=0, description="steps before anything is pruned, in multiples of the warm-up"
    )
    flat_end: int = Field(
        1, ge=0, description="steps at full sparsity, in multiples of the warm-up"
    )
    name_pattern: str | None = Field(
        None, description="regular expression: mask only matrices whose name matches somewhere"
    )

    @property
    def schedule_ends(self) -> tuple[float, float]:
        """θ_i and θ_f, between which the schedule goes."""
        return 1.0, 1.0

    @field_validator("name_pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return pattern


class Ranked(Pruning):
    """Methods that keep a given fraction v of the weights, the highest ranked."""

    initial_density: float = Field(1.0, gt=0, le=1, description="fraction v kept at the start")
    final_density: float = Field(0.1, gt=0, le=1, description="fraction v kept at the end")
    scope: Literal["local", "global"] = Field(
        "local", description="rank within each matrix, or over all of them"
    )

    @property
    def schedule_ends(self) -> tuple[float, float]:
        return self.initial_density, self.final_density


class Magnitude(Ranked):
    """Keeps the largest weights by absolute value."""

    method: Literal["magnitude"] = "magnitude"


class Movement(Ranked):
    """Keeps the weights with the largest learned scores."""

    method: Literal["movement"] = "movement"


class Penalized(Pruning):
    """Methods whose sparsity comes from the penalty λ·R; λ is given, or learned so that the run
    ends at ``target_density``."""

    multiplier: float = Field(50.0, ge=0, description="λ at the end of the schedule")
    penalty: Literal["matrix", "weight"] = Field(
        "matrix", description="R is a mean over matrices (as in the reference) or over weights"
    )
    target_density: float | None = Field(
        None, gt=0, lt=1, description="density to reach; λ is then learned in the run"
    )
    multiplier_rate: float = Field(
        2500.0, gt=0, description="rate of ascent on a learned λ, over a whole run"
    )


class SoftMovement(Penalized):
    """Keeps a weight while σ(S) > τ; τ rises along the schedule (BERMo, Table 10)."""

    method: Literal["soft_movement"] = "soft_movement"
    initial_threshold: float = Field(0.0, ge=0, lt=1, description="τ at the start")
    final_threshold: float = Field(0.1, gt=0, lt=1, description="τ at the end")

    @property
    def schedule_ends(self) -> tuple[float, float]:
        return self.initial_threshold, self.final_threshold


class L0(Penalized):
    """Hard concrete gates; λ is constant over the run."""

    method: Literal["l0"] = "l0"
    initial_score: float = Field(
        2.197, description="scores at the start: σ(S) = 0.9, so that a gate is open with P = 0.98"
    )


# Method -> the type of its settings. A plug-in adds its own here (CONTRIBUTING.md).
PRUNING_SETTINGS: dict[str, type[Pruning]] = {
    "magnitude": Magnitude,
    "movement": Movement,
    "soft_movement": SoftMovement,
    "l0": L0,
}


def _pruning_by_method(value: Any, handler: ValidatorFunctionWrapHandler) -> Pruning:
    """Validates a section by the type that its ``method`` names; ``l0`` where it names none."""
    if not isinstance(value, Mapping):
        checked: Pruning = handler(value)
        return checked
    method = value.get("method", "l0")
    if method not in PRUNING_SETTINGS:
        raise ValueError(unknown("pruning.method", str(method), PRUNING_SETTINGS))
    return PRUNING_SETTINGS[method].model_validate_json(json.dumps(dict(value)))


PruningSection = Annotated[SerializeAsAny[Pruning], WrapValidator(_pruning_by_method)]


class Distillation(Section):
    """Loss `alpha_ce·CE + alpha_kd·T²·KL(teacher, student)` (both α: BERMo, Table 11)."""

    teacher: str = Field(
        description="folder of a fine-tuned checkpoint, stock or of an earlier trial; same labels"
    )
    alpha_ce: float = Field(0.1, ge=0)
    alpha_kd: float = Field(0.9, gt=0)
    temperature: float = Field(2.0, gt=0)


class Optimizer(Section):
    """AdamW (0.9, 0.999, 1e-8) with linear warm-up and decay."""

    learning_rate: float = Field(3e-5, gt=0)
    score_learning_rate: float = Field(1e-2, gt=0, description="of the mask scores")
    fusion_learning_rate: float = Field(
        1e-2, gt=0, description="of the fusion's scalars: α and γ of BERMo"
    )
    weight_decay: float = Field(0.0, ge=0)
    warmup: int | float = Field(0.1, ge=0, description="steps if >= 1, else share of all steps")
    max_gradient_norm: float = Field(1.0, gt=0, description="over all parameters together")


class Trial(Section):
    """One training run, complete: the same Trial gives the same numbers."""

    data: Data = Data()
    backbone: str = "embedded"
    fusion: Fusion = Fusion()
    layer_drop: LayerDrop | None = None
    pruning: PruningSection | None = None
    distillation: Distillation | None = None
    warm_start: str | None = Field(
        None,
        description="folder of a fine-tuned model that training starts from: an earlier trial's "
        "checkpoint, or a stock one with its head",
    )
    optimizer: Optimizer = Optimizer()
    freeze_embeddings: bool | None = Field(None, description="None: while pruning")
    mode: Literal["finetune", "features"] = Field(
        "finetune", description="features: backbone frozen, fusion and head alone learn"
    )
    epochs: int = Field(3, ge=1)
    batch_size: int = Field(32, ge=1, description="rows per step, over all workers")
    micro_batches: int = Field(1, ge=1, description="parts that a step's rows are run in")
    evaluations_per_epoch: int = Field(1, ge=1, description="each with a checkpoint")
    final_checkpoint: Literal["last", "best", "best_loss"] = Field(
        "last",
        description="whose model is reported and saved at the end: the last evaluation's, or of "
        "those at full sparsity the best one's on the selection half of dev, or the one with the "
        "least loss on all of dev",
    )
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _features_are_frozen(self) -> Self:
        if self.mode == "features" and self.pruning is not None:
            raise ValueError("mode 'features' freezes the weights that pruning would mask")
        if self.mode == "features" and self.freeze_embeddings is False:
            raise ValueError("freeze_embeddings: got False, but mode 'features' freezes them too")
        return self

    @model_validator(mode="after")
    def _gradual_dropping_ends(self) -> Self:
        drop = self.layer_drop
        if drop is None or drop.epochs_per_layer is None:
            return self
        if self.mode == "features":
            raise ValueError(
                "layer_drop.epochs_per_layer: mode 'features' reads fixed layers, none go later"
            )
        count = drop.count if drop.dropped_layers is None else len(drop.dropped_layers)
        needed = count * drop.epochs_per_layer
        if needed >= self.epochs:
            raise ValueError(
                f"layer_drop.epochs_per_layer: {count} layers, one every {drop.epochs_per_layer} "
                f"epochs, take {needed} epochs and some training after; got epochs={self.epochs}"
            )
        return self

    def to_json(self) -> str:
        """Every field, defaults included, keys in a fixed order."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        """The inverse of :meth:`to_json`.

        Raises:
            UserError: with one line for each problem: unknown keys, wrong types, out of range.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise UserError(*_every_problem(text, error)) from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Trial":
        """A Trial from nested plain values; see :meth:`from_json` for what bad input gets."""
        return cls.from_json(json.dumps(values))

    def replace(self, **changes: Any) -> "Trial":
        """A copy with some fields changed; ``__`` goes into a section.

        >>> Trial().replace(seed=1, optimizer__learning_rate=1e-4).seed
        1
        """
        values = self.model_dump(mode="json")
        for key, value in changes.items():
            *path, last = key.split("__")
            section = values
            for name in path:
                if section.get(name) is None:
                    section[name] = {}
                section = section[name]
            # Copied, for a later key may go into what an earlier one brought.
            is_section = isinstance(value, BaseModel)
            section[last] = value.model_dump(mode="json") if is_section else copy.deepcopy(value)
        return Trial.from_dict(values)

    @property
    def id(self) -> str:
        """Identity: 12 hex digits of the content.

        Where the data lies is not content; the digest of a user's own data is. Fields at their
        default are left out, so that a field added later leaves the identity of every earlier trial
        as it was; a default, therefore, is never changed.
        """
        values = self.model_dump(mode="json", exclude_defaults=True)
        if self.pruning is not None:  # a default of its type, yet what tells the types apart
            values["pruning"]["method"] = self.pruning.method
        if "data" in values:
            values["data"] = self.data.content(values["data"])
        values = {key: value for key, value in values.items() if key != "data" or value}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def recipe(self) -> str:
        """Identity but for the seed: what trials over several seeds share."""
        return self.model_copy(update={"seed": 0}).id

    @property
    def embeddings_frozen(self) -> bool:
        """Whether fine-tuning leaves the embeddings as they are; where ``freeze_embeddings`` does
        not say, it does while pruning."""
        if self.freeze_embeddings is None:
            return self.pruning is not None
        return self.freeze_embeddings

    def warmup_steps(self, total_steps: int) -> int:
        """w of docs/methods.md §2: given as steps, or as a share of all steps."""
        warmup = self.optimizer.warmup
        return int(warmup) if warmup >= 1 else round(warmup * total_steps)

    def flat(self) -> dict[str, str | int | float | bool | None]:
        """Fields as ``section.field`` in order of declaration, for parameters and tables."""
        return _flatten(self.model_dump(mode="json"))


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Sections within sections as ``section.section.field``, lists as JSON."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            out |= _flatten(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = json.dumps(value) if isinstance(value, list) else value
    return out


def _every_problem(text: str, error: ValidationError) -> list[str]:
    """Pydantic checks a section as a whole only once its fields are right, so what is wrong is put
    back to its default and the rest checked again, until nothing new comes up."""
    lines = [_line(item) for item in error.errors()]
    values = json.loads(text) if error.errors()[0]["loc"] else None
    while values is not None:
        for item in error.errors():
            *path, last = item["loc"]
            section = values
            for name in path:
                section = section.get(name, {}) if isinstance(section, dict) else {}
            if isinstance(section, dict):
                section.pop(last, None)
        try:
            Trial.model_validate_json(json.dumps(values))
            break
        except ValidationError as again:
            new_lines = [line for item in again.errors() if (line := _line(item)) not in lines]
            lines += new_lines
            error = again
            if not new_lines or not error.errors()[0]["loc"]:
                break
    return lines


def _line(item: ErrorDetails) -> str:
    """One of pydantic's findings in a short line, with the nearest name for an unknown key."""
    path = [str(part) for part in item["loc"]]
    field = ".".join(path)
    if item["type"] == "extra_forbidden":
        *parents, last = path
        owners = [m for m, kind in PRUNING_SETTINGS.items() if last in kind.model_fields]
        if parents == ["pruning"] and owners:
            return f"{field}: only {' and '.join(owners)} have it, not this method"
        return unknown("key", field, _known_keys(parents))
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        if not field or message.startswith(("unknown ", f"{field}.")):
            return message
        names_its_field = re.match(r"\w+: ", message) and field in Trial.model_fields
        return f"{field}.{message}" if names_its_field else f"{field}: {message}"
    message = (message[0].lower() + message[1:]).replace("input should be", "expected")
    return f"{field or 'trial'}: got {item['input']!r}, {message}"


def _known_keys(path: list[str]) -> list[str]:
    """The keys of the section at that path; of pruning, those of all methods."""
    sections: list[type[BaseModel]] = [Trial]
    for name in path:
        annotation = sections[0].model_fields[name].annotation
        options = [annotation, *getattr(annotation, "__args__", ())]
        sections = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
    if path == ["pruning"]:
        sections = list(PRUNING_SETTINGS.values())
    names = dict.fromkeys(name for section in sections for name in section.model_fields)
    return [".".join([*path, name]) for name in names]
