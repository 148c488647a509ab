"""Trial: everything that decides what one training run computes, frozen and checked.

A Trial says *what* is trained; where it runs (workers, GPUs, storage) is the study's business, so
the same Trial gives the same numbers on a laptop and on a cluster at the same world size.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bermo_ray.errors import UserError, unknown


class _Section(BaseModel):
    # strict: "3" is not 3, and True is not 1; extra="forbid": a misspelt key never passes unseen.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )


class Data(_Section):
    """Which rows are learned and measured."""

    task: str = "tense"
    train_rows: int | float | None = Field(
        None, gt=0, description="rows if whole, a share if below 1; None: all there are"
    )
    dev_rows: int | float | None = Field(None, gt=0, description="as train_rows")
    max_length: int = Field(128, ge=4, description="word pieces a row; longer rows are cut")
    data_dir: str | None = Field(
        None, description="folder of parquet or original files; None: the hub (not embedded)"
    )
    shots: int | None = Field(
        None, ge=1, description="few-shot: so many rows a class, drawn from all rows alike"
    )
    dev_half: Literal["first", "second"] | None = Field(
        None, description="one half of the dev set, the same for every seed"
    )

    @model_validator(mode="after")
    def _subsets_are_whole_or_shares(self) -> Self:
        for name in ("train_rows", "dev_rows"):
            value = getattr(self, name)
            if isinstance(value, float) and value >= 1:
                raise ValueError(f"{name}: got {value}, expected whole rows, or a share below 1")
        if self.shots is not None and self.train_rows is not None:
            raise ValueError("shots and train_rows both say how many rows to train on: give one")
        return self


class Fusion(_Section):
    """How all layers' states become one (methods §1); switches other than name are BERMo's
    (``opening`` also ``every_layer``'s)."""

    name: str = "last"
    norm: Literal["layer", "stack", "depth", "none"] = "layer"
    dropout: float = Field(0.1, ge=0, lt=1)
    weights: Literal["softmax", "raw"] = "softmax"
    scale: bool = Field(True, description="learn γ; False fixes it at 1")
    start: Literal["xavier", "zeros"] = "xavier"
    layers: tuple[int, ...] | None = Field(None, description="states mixed, 0 = embeddings")
    opening: float = Field(
        0.0, ge=0, le=1, description="share of training in which skip connections open one by one"
    )


class LayerDrop(_Section):
    """Which layers go (methods §3), before training or while it runs; layers are counted from 1."""

    strategy: str = "top"
    count: int = Field(0, ge=0)
    layers: tuple[int, ...] | None = Field(None, description="for strategy 'explicit'")
    threshold: float | None = Field(
        None, gt=-1, lt=1, description="contribution: layers more similar than this go, not K"
    )
    every: int | None = Field(
        None, ge=1, description="gradual: one layer goes each time so many epochs have passed"
    )

    @model_validator(mode="after")
    def _settings_fit_the_strategy(self) -> Self:
        if (self.strategy == "explicit") != (self.layers is not None):
            raise ValueError("strategy 'explicit' and a list of layers go together")
        if self.layers is not None and len(set(self.layers)) != len(self.layers):
            raise ValueError(f"a layer is named twice in {list(self.layers)}")
        if self.threshold is not None:
            if self.strategy != "contribution":
                raise ValueError(f"threshold is for strategy 'contribution', not {self.strategy}")
            if self.count:
                raise ValueError("count and threshold both say how many layers go: give one")
            if self.every is not None:
                raise ValueError("every needs a count of layers or their list, not a threshold")
        return self


class Pruning(_Section):
    """Which weights stay (methods §2).

    The thresholds are kept fractions v of ``magnitude`` and ``movement`` (from 1 to 0.1, say) and τ
    of ``soft_movement`` (from 0 to 0.1); ``l0`` leaves both at 1.
    """

    method: str = "l0"
    final_lambda: float = Field(50.0, ge=0, description="multiplier of the penalty at the end")
    penalty: Literal["matrix", "weight"] = Field(
        "matrix", description="mean over matrices (the reference) or over weights"
    )
    initial_threshold: float = Field(1.0, ge=0, le=1)
    final_threshold: float = Field(1.0, gt=0, le=1)
    initial_warmup: int = Field(1, ge=0, description="flat start, in multiples of the warm-up")
    final_warmup: int = Field(1, ge=0, description="flat end, in multiples of the warm-up")
    mask_start: float = Field(2.197, description="l0's scores at the start; 2.197: ~95 % open")
    freeze_embeddings: bool = True
    scope: Literal["local", "global"] = Field(
        "local", description="magnitude, movement: rank within each matrix, or over all of them"
    )
    only: str | None = Field(None, description="regular expression: mask only what it matches")
    target: float | None = Field(
        None, gt=0, lt=1, description="l0, soft_movement: density to reach; λ is learned"
    )
    multiplier_rate: float = Field(2500.0, gt=0, description="rate of ascent on λ over a run")

    @model_validator(mode="after")
    def _settings_fit_the_method(self) -> Self:
        ranked, known = self.method in ("magnitude", "movement"), ("l0", "soft_movement")
        if ranked and self.initial_threshold == 0:
            raise ValueError(f"{self.method}: got initial_threshold=0.0, expected 0 < kept <= 1")
        if self.method == "soft_movement":
            for name in ("initial_threshold", "final_threshold"):
                if (value := getattr(self, name)) == 1:
                    raise ValueError(f"soft_movement: got {name}={value}, expected a τ below 1")
        if self.method == "l0" and self.initial_threshold != self.final_threshold:
            raise ValueError("l0 has no threshold: leave initial and final_threshold alone")
        if self.scope == "global" and not ranked:
            raise ValueError(f"scope 'global' is for magnitude and movement, not {self.method}")
        if self.target is not None and self.method not in known:
            raise ValueError(
                f"target is for {known[0]} and {known[1]}; {self.method} has final_threshold"
            )
        if self.only is not None:
            try:
                re.compile(self.only)
            except re.error as error:
                raise ValueError(f"only: {self.only!r} is no regular expression: {error}") from None
        return self


class Distillation(_Section):
    """Loss `alpha_ce·CE + alpha_kd·T²·KL(teacher, student)` (methods §2; BERMo, Table 11)."""

    teacher: str = Field(
        description="folder of a fine-tuned checkpoint, stock or of an earlier trial; same labels"
    )
    alpha_ce: float = Field(0.1, ge=0)
    alpha_kd: float = Field(0.9, gt=0)
    temperature: float = Field(2.0, gt=0)


class Optimizer(_Section):
    """AdamW (0.9, 0.999, 1e-8) with linear warm-up and decay."""

    learning_rate: float = Field(3e-5, gt=0)
    mask_rate: float = Field(1e-2, gt=0, description="rate of scores and of fusion scalars")
    weight_decay: float = Field(0.0, ge=0)
    warmup: int | float = Field(0.1, ge=0, description="steps if >= 1, else share of all steps")
    clip: float = Field(1.0, gt=0, description="largest gradient norm, over everything")


class Trial(_Section):
    """One training run, complete: the same Trial gives the same numbers."""

    data: Data = Data()
    backbone: str = "embedded"
    fusion: Fusion = Fusion()
    layer_drop: LayerDrop | None = None
    pruning: Pruning | None = None
    distillation: Distillation | None = None
    start: str | None = Field(
        None, description="folder of an earlier trial's checkpoint that training starts from"
    )
    optimizer: Optimizer = Optimizer()
    mode: Literal["finetune", "features"] = Field(
        "finetune", description="features: backbone frozen, fusion and head alone learn"
    )
    epochs: int = Field(3, ge=1)
    batch_size: int = Field(32, ge=1, description="rows a step over all workers")
    micro_batches: int = Field(1, ge=1, description="parts that a step's rows are run in")
    evaluations: int = Field(1, ge=1, description="evaluations (and checkpoints) an epoch")
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _features_are_not_pruned(self) -> Self:
        if self.mode == "features" and self.pruning is not None:
            raise ValueError("mode 'features' freezes the weights that pruning would mask")
        return self

    @model_validator(mode="after")
    def _gradual_dropping_ends(self) -> Self:
        drop = self.layer_drop
        if drop is None or drop.every is None:
            return self
        if self.mode == "features":
            raise ValueError("mode 'features' reads fixed layers: layer_drop.every is not for it")
        count = drop.count if drop.layers is None else len(drop.layers)
        if count * drop.every >= self.epochs:
            raise ValueError(
                f"layer_drop.every: {count} layers, one every {drop.every} epochs, take "
                f"{count * drop.every} epochs and some training after; got epochs={self.epochs}"
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
            section[last] = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        return Trial.from_dict(values)

    @property
    def id(self) -> str:
        """Identity: 12 hex digits of the content.

        Where the data lies on disk is not content. Fields at their default are left out, so that
        a field added later leaves the identity of every earlier trial as it was; a default,
        therefore, is never changed.
        """
        values = self.model_dump(mode="json", exclude_defaults=True)
        values.get("data", {}).pop("data_dir", None)
        values = {key: value for key, value in values.items() if key != "data" or value}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def recipe(self) -> str:
        """Identity but for the seed: what trials over several seeds share."""
        return self.model_copy(update={"seed": 0}).id

    def warmup_steps(self, total_steps: int) -> int:
        """w of methods §2: given as steps, or as a share of all steps."""
        warmup = self.optimizer.warmup
        return int(warmup) if warmup >= 1 else round(warmup * total_steps)

    def flat(self) -> dict[str, str | int | float | bool | None]:
        """Fields as ``section.field`` in order of declaration, for parameters and tables."""
        out: dict[str, str | int | float | bool | None] = {}
        for key, value in self.model_dump(mode="json").items():
            if isinstance(value, dict):
                out |= {f"{key}.{k}": json.dumps(v) if isinstance(v, list) else v
                        for k, v in value.items()}  # fmt: skip
            else:
                out[key] = value
        return out


def _every_problem(text: str, error: ValidationError) -> list[str]:
    """Pydantic checks a section as a whole only once its fields are right, so what is wrong is put
    back to its default and the rest checked again, until nothing new comes up."""
    lines = _lines(error)
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
            new = [line for line in _lines(again) if line not in lines]
            lines += new
            error = again
            if not new or not error.errors()[0]["loc"]:
                break
    return lines


def _lines(error: ValidationError) -> list[str]:
    """Pydantic's findings, one short line each, with the nearest name for an unknown key."""
    lines = []
    for item in error.errors():
        path = [str(p) for p in item["loc"]]
        where = ".".join(path)
        if item["type"] == "extra_forbidden":
            section: Any = Trial
            for name in path[:-1]:
                section = _section_type(section, name)
            lines.append(f"trial: {unknown('key', where, _keys(section, path[:-1]))}")
        else:
            message = item["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:]
            message = message.replace("input should be", "expected")
            got = "" if item["type"] == "value_error" else f"got {item['input']!r}, "
            lines.append(f"trial: {where and where + ': '}{got}{message}")
    return lines


def _section_type(model: type[BaseModel], field: str) -> type[BaseModel]:
    annotation = model.model_fields[field].annotation
    options = [annotation, *getattr(annotation, "__args__", ())]
    return next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))


def _keys(model: type[BaseModel], path: list[str]) -> list[str]:
    return [".".join([*path, name]) for name in model.model_fields]
