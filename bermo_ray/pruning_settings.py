"""The section of a trial that says how it is pruned: a type of settings for each method."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from bermo_ray.errors import unknown
from bermo_ray.validation import Section


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
