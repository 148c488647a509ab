"""Fusions, pruning methods and tasks that a user defines outside of this package.

A plug-in is a module that adds to the registries when it is imported (``FUSIONS``, ``METHODS`` with
``PRUNING_SETTINGS``, ``register_task``). It is named by ``--plugin my_module`` or, if installed, by
an entry point of the group ``bermo_ray.plugins``. Every process that runs trials imports it before
it reads one.
"""

import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

from bermo_ray.errors import UserError

ENTRY_POINTS = "bermo_ray.plugins"


def load_plugins(names: Iterable[str] = ()) -> None:
    """Imports the modules of these names, and those of all installed entry points, each once.

    Raises:
        UserError: a module that can't be found or imported.
    """
    installed = [entry.module for entry in entry_points(group=ENTRY_POINTS)]
    for name in dict.fromkeys([*installed, *names]):
        try:
            importlib.import_module(name)
        except UserError:
            raise
        except Exception as error:  # whatever a user's module does
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UserError(f"plugin: {name!r} can't be imported ({why})") from error


def add_working_directory() -> None:
    """Lets modules beside the caller be imported, as ``python -m`` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def plugin_paths(names: Iterable[str]) -> list[str]:
    """Files or package folders of these modules, for sending them to other machines; what is
    installed there as it is here need not be sent."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths = []
    for name in names:
        spec = importlib.util.find_spec(name.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            paths.append(str(Path(next(iter(spec.submodule_search_locations))).absolute()))
        elif spec is not None and spec.origin:
            paths.append(str(Path(spec.origin).absolute()))
    return [
        p for p in dict.fromkeys(paths) if not any(Path(p).is_relative_to(i) for i in installed)
    ]
