"""Checked settings, and what is wrong with them as lines for a user: every problem at once, with
the nearest name for an unknown key."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from bermo_ray.errors import unknown

# Section -> what tells its types apart -> the type.
Variants = Mapping[str, Mapping[str, type[BaseModel]]]


class Section(BaseModel):
    """Settings that are frozen and checked in full."""

    # strict: "3" is not 3, and True is not 1; extra="forbid": a misspelt key never passes unseen.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )


def describe_problems(
    model: type[BaseModel], text: str, error: ValidationError, variants: Variants
) -> list[str]:
    """One line for each problem of a model's JSON.

    Pydantic checks a section as a whole only once its fields are right, so what is wrong is put
    back to its default and the rest checked again, until nothing new comes up.

    Args:
        model: What the text was to be.
        text: JSON.
        error: What pydantic said of it.
        variants: Sections that are one of several types.
    """
    lines = [_line(model, item, variants) for item in error.errors()]
    values = json.loads(text) if error.errors()[0]["loc"] else None
    while values is not None:
        _remove(values, error)
        try:
            model.model_validate_json(json.dumps(values))
            break
        except ValidationError as again:
            error = again
            new_lines = [_line(model, item, variants) for item in error.errors()]
            new_lines = [line for line in new_lines if line not in lines]
            lines += new_lines
            if not new_lines or not error.errors()[0]["loc"]:
                break
    return lines


def _remove(values: dict[str, Any], error: ValidationError) -> None:
    """Takes out what was found wrong."""
    for item in error.errors():
        *path, last = item["loc"]
        section: Any = values
        for name in path:
            section = section.get(name, {}) if isinstance(section, dict) else {}
        if isinstance(section, dict):
            section.pop(last, None)


def _line(model: type[BaseModel], item: ErrorDetails, variants: Variants) -> str:
    """One of pydantic's findings in a short line, with the nearest name for an unknown key."""
    path = [str(part) for part in item["loc"]]
    field = ".".join(path)
    if item["type"] == "extra_forbidden":
        *parents, last = path
        kinds = variants.get(parents[0], {}) if len(parents) == 1 else {}
        owners = [name for name, kind in kinds.items() if last in kind.model_fields]
        if owners:
            return f"{field}: only {' and '.join(owners)} have it, not this method"
        return unknown("key", field, _known_keys(model, parents, variants))
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        if not field or message.startswith(("unknown ", f"{field}.")):
            return message
        names_its_field = re.match(r"\w+: ", message) and field in model.model_fields
        return f"{field}.{message}" if names_its_field else f"{field}: {message}"
    message = (message[0].lower() + message[1:]).replace("input should be", "expected")
    return f"{field or model.__name__.lower()}: got {item['input']!r}, {message}"


def _known_keys(model: type[BaseModel], path: list[str], variants: Variants) -> list[str]:
    """The keys of the section at that path; of one with several types, those of all."""
    sections: list[type[BaseModel]] = [model]
    for name in path:
        annotation = sections[0].model_fields[name].annotation
        options = [annotation, *getattr(annotation, "__args__", ())]
        sections = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
    if len(path) == 1 and path[0] in variants:
        sections = list(variants[path[0]].values())
    names = dict.fromkeys(name for section in sections for name in section.model_fields)
    return [".".join([*path, name]) for name in names]
