"""Folders that sentence-transformers wrote: where their encoder lies, and how they pool."""

import json
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError, listed

_MODULES_FILE = "modules.json"
POOLINGS = ("cls", "mean", "max")


def find_encoder_folder(folder: Path) -> Path:
    """The folder of the encoder itself: that of the first module, else ``folder``."""
    modules = _read_modules(folder)
    return folder / modules[0].get("path", "") if modules else folder


def read_pooling(folder: Path) -> str | None:
    """How a row's states become one: ``cls``, ``mean`` or ``max``; None where nothing says.

    Raises:
        UserError: in a way that is none of these.
    """
    paths = [m.get("path", "") for m in _read_modules(folder) if m["type"].endswith("Pooling")]
    if not paths:
        return None
    settings = json.loads((folder / paths[0] / "config.json").read_text())
    named = settings.get("pooling_mode")  # newer folders; older ones have a switch for each mode
    modes = [named] if isinstance(named, str) else list(named or ())
    for key, is_on in settings.items():
        if key.startswith("pooling_mode_") and is_on:
            modes.append(
                key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            )
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise UserError(
            f"backbone {str(folder)!r}: it pools by {listed(modes) or 'nothing'}, expected one of "
            f"{listed(POOLINGS)}"
        )
    return str(modes[0])


def _read_modules(folder: Path) -> list[dict[str, Any]]:
    """Its modules in their order; none where sentence-transformers did not write the folder."""
    file = folder / _MODULES_FILE
    if not file.is_file():
        return []
    modules = json.loads(file.read_text())
    return sorted(modules, key=lambda module: int(module["idx"]))
