"""Changes of nested settings, by section or by dotted name, and all combinations of them."""

import copy
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bermo_ray.errors import UserError


def lay_over(
    values: Mapping[str, Any], changes: Mapping[str, Any], section_names: Mapping[str, str]
) -> dict[str, Any]:
    """Nested plain values with changes laid over them, in order; neither is changed itself.

    A mapping is laid over its section, anything else takes the place of what was there.

    >>> lay_over({"seed": 0, "fusion": {"name": "last", "norm": "none"}},
    ...          {"seed": 1, "fusion": "bermo", "fusion.norm": "layer"}, {"fusion": "name"})
    {'seed': 1, 'fusion': {'name': 'bermo', 'norm': 'layer'}}

    Args:
        values: By field; a section's are a mapping, or None where it is left out.
        changes: By field or ``section.field``; a section within one as ``section.section.field``.
        section_names: Of sections, the field that a plain string stands for. Where a mapping gives
            ``method`` another value, the section begins anew.
    """
    changed = dict(values)
    for name, value in changes.items():
        section, *path = name.split(".")
        change = value
        for field in reversed(path):  # a section may have sections of its own
            change = {field: change}
        if isinstance(change, str) and section in section_names:
            change = {section_names[section]: change}
        changed[section] = _lay_over_section(changed.get(section), change)
    return changed


def _lay_over_section(current: Any, change: Any) -> Any:
    if isinstance(change, BaseModel):
        return change.model_dump(mode="json")
    change = copy.deepcopy(change)
    if not isinstance(change, Mapping):
        return change
    if not isinstance(current, Mapping):
        return dict(change)
    # Methods have different fields: those of another one are no longer right.
    is_other = change.get("method", current.get("method")) != current.get("method")
    if is_other:
        return dict(change)
    inner = {name: _lay_over_section(current.get(name), value) for name, value in change.items()}
    return {**current, **inner}


def combine(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All combinations of the fields' values, as changes; the first field varies slowest.

    >>> combine({"seed": range(2), "fusion": {"norm": ["layer"]}})
    [{'seed': 0, 'fusion.norm': 'layer'}, {'seed': 1, 'fusion.norm': 'layer'}]

    Raises:
        UserError: Fields that have no values to choose from, a line each.
    """
    fields: dict[str, Any] = {}
    for name, choices in values.items():
        inner = choices if isinstance(choices, Mapping) else None
        fields |= {name: choices} if inner is None else {f"{name}.{k}": v for k, v in inner.items()}
    problems = [line for name, choices in fields.items() if (line := _find_problem(name, choices))]
    if problems:
        raise UserError(*problems)
    lists = {name: list(choices) for name, choices in fields.items()}
    if empty := [name for name, choices in lists.items() if not choices]:
        raise UserError(*(f"{name}: got no values to vary over" for name in empty))
    return [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]


def _find_problem(name: str, choices: Any) -> str | None:
    """A text is a value, and pydantic's models can be iterated over by field."""
    if isinstance(choices, Iterable) and not isinstance(choices, str | bytes | BaseModel):
        return None
    shown = f"[{choices!r}]" if isinstance(choices, str | bytes | int | float) else "[…]"
    return f"{name}: got {choices!r}, expected several values to vary over, as in {shown}"


def to_plain(value: Any) -> Any:
    """A number or array of numpy's, or a path, as JSON can have it.

    Raises:
        UserError: Anything else.
    """
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise UserError(f"got {value!r}, expected plain values: numbers, text, lists and mappings")
