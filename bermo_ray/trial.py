"""Trial: everything that decides what one training run computes, frozen and checked.

A Trial says *what* is trained; where it runs (workers, GPUs, storage) is the study's business, so
the same Trial gives the same numbers on a laptop and on a cluster at the same world size.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, TypedDict, Unpack, cast

from pydantic import Field, ValidationError, model_validator

from bermo_ray.changes import combine, lay_over, to_plain
from bermo_ray.data_section import Data
from bermo_ray.errors import UserError
from bermo_ray.html import to_html_table
from bermo_ray.pruning_settings import (
    L0,
    PRUNING_SETTINGS,
    Magnitude,
    Movement,
    Penalized,
    Pruning,
    PruningSection,
    Ranked,
    SoftMovement,
)
from bermo_ray.validation import Section, describe_problems

__all__ = [
    "L0",
    "PRUNING_SETTINGS",
    "SECTION_NAMES",
    "Data",
    "Distillation",
    "Fusion",
    "LayerDrop",
    "Magnitude",
    "Movement",
    "Optimizer",
    "Penalized",
    "Pruning",
    "Ranked",
    "SoftMovement",
    "Trial",
    "TrialFields",
]


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


# What a section goes by: the field that a plain string stands for.
SECTION_NAMES = {
    "data": "task",
    "fusion": "name",
    "layer_drop": "strategy",
    "pruning": "method",
    "distillation": "teacher",
}


Changes = Mapping[str, Any]  # of a section, by field


PrecisionName = Literal["fp32", "tf32", "bf16", "fp16"]


class TrialFields(TypedDict, total=False):
    """What :meth:`Trial.replace` takes for each field."""

    data: Data | Changes | str
    backbone: str
    fusion: Fusion | Changes | str
    layer_drop: LayerDrop | Changes | str | None
    pruning: Pruning | Changes | str | None
    distillation: Distillation | Changes | str | None
    warm_start: str | None
    optimizer: Optimizer | Changes
    freeze_embeddings: bool | None
    mode: Literal["finetune", "features"]
    epochs: int
    batch_size: int
    micro_batches: int
    precision: PrecisionName | None
    evaluations_per_epoch: int
    final_checkpoint: Literal["last", "best", "best_loss"]
    seed: int


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
    precision: PrecisionName | None = Field(
        None, description="of forwards; None: bf16 on GPUs that have it, else fp32"
    )
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
            raise UserError(
                *describe_problems(cls, text, error, {"pruning": PRUNING_SETTINGS})
            ) from None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Trial":
        """A Trial from nested plain values; see :meth:`from_json` for what bad input gets."""
        return cls.from_json(json.dumps(values, default=to_plain))

    def replace(
        self, changes: Mapping[str, Any] | None = None, /, **fields: Unpack[TrialFields]
    ) -> "Trial":
        """A copy with some fields changed.

        A section is given whole (``fusion=Fusion(name="bermo")``, ``pruning=None``), as a mapping
        that is laid over it (``optimizer={"warmup": 0}``), or by what it goes by:
        ``fusion="bermo"`` is short for ``fusion={"name": "bermo"}``, and so with the task of
        ``data``, the method of ``pruning``, the strategy of ``layer_drop`` and the teacher of
        ``distillation``. Another method of pruning begins with its own defaults.

        >>> Trial().replace(seed=1, fusion="bermo", optimizer={"warmup": 0}).fusion.name
        'bermo'
        >>> Trial().replace({"optimizer.warmup": 0}).optimizer.warmup
        0

        Args:
            changes: By names that may be dotted, as ``--set`` and records have them.
            fields: The same by keyword; they come after ``changes``.

        Raises:
            UserError: As :meth:`from_json`.
        """
        values = self.model_dump(mode="json")
        for change in (changes or {}, cast(Mapping[str, Any], fields)):
            values = lay_over(values, change, SECTION_NAMES)
        return Trial.from_dict(values)

    def vary(
        self, changes: Mapping[str, Iterable[Any]] | None = None, /, **fields: Any
    ) -> list["Trial"]:
        """All combinations of some fields' values; the first field varies slowest.

        >>> [t.seed for t in Trial().vary(fusion=["last", "bermo"], seed=range(3))]
        [0, 1, 2, 0, 1, 2]
        >>> [t.pruning.multiplier for t in Trial().vary(pruning={"multiplier": [1.0, 10.0]})]
        [1.0, 10.0]

        Args:
            changes: The values of each field, by names that may be dotted.
            fields: The same by keyword; of a section, a mapping of its fields' values, or a list of
                what :meth:`replace` takes for it.

        Raises:
            UserError: A field without several values to choose from; else as :meth:`from_json`.
        """
        return [self.replace(chosen) for chosen in combine({**(changes or {}), **fields})]

    def describe_changes(self) -> dict[str, Any]:
        """What differs from the default trial, as ``section.field``; what a section goes by is
        always there."""
        values, default = self.flat(), Trial().flat()
        named = {f"{section}.{field}" for section, field in SECTION_NAMES.items()}
        return {
            name: value
            for name, value in values.items()
            if (value != default.get(name) or name in named) and (value is not None)
        }

    def _repr_html_(self) -> str:
        """For notebooks: its identity and what differs from the default trial."""
        return to_html_table(
            ("field", "value"), self.describe_changes().items(), f"Trial {self.id}"
        )

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
