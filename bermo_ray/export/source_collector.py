"""Collects the source of definitions and of all that they use, into one module of its own.

Names are followed through the imports of our packages; what others define is imported. Only names
that are used when the code runs are followed: the module is to begin with ``from __future__ import
annotations``, so that annotations are never evaluated.
"""

import ast
import inspect
from functools import cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import resolve_name
from typing import NamedTuple


class SourceCollector:
    """Definitions (classes, functions, constants) of some packages, with what they use.

    1. :meth:`add` takes a definition, and those that it uses.
    2. :meth:`external_imports` and :meth:`sources` give the text of all that was added.

    Args:
        packages: Packages, or modules in them, whose definitions are collected; what is imported
            from any other package stays an import.
    """

    def __init__(self, *packages: str) -> None:
        self._packages = {name.partition(".")[0] for name in packages}
        self._modules: dict[str, _Module] = {}
        self._names_used: dict[tuple[str, str], set[str]] = {}  # of each (module, definition)
        self._modules_used: dict[str, set[str]] = {}  # of each module, by its definitions

    def add(self, module_name: str, name: str) -> str | None:
        """Takes a definition by the name that it has in a module, wherever that imports it from.

        Returns:
            The module that defines it; None where none of our packages does.
        """
        if module_name not in self._modules:
            self._modules[module_name] = _Module(module_name)
        module = self._modules[module_name]
        if name not in module.definitions:
            origin = module.imports.get(name)
            if origin is None or not origin.name or not self._is_ours(origin.module):
                return None
            return self.add(origin.module, origin.name)
        if (module_name, name) not in self._names_used:
            names = runtime_names(module.definitions[name])
            self._names_used[module_name, name] = names
            modules = self._modules_used.setdefault(module_name, set())
            for other in sorted(names):
                origin_name = self.add(module_name, other)
                if origin_name not in (None, module_name):
                    modules.add(origin_name)
        return module_name

    def _is_ours(self, module_name: str) -> bool:
        return module_name.partition(".")[0] in self._packages

    def external_imports(self) -> set[str]:
        """The lines that import what our packages do not define."""
        lines: set[str] = set()
        for (module_name, _), names in self._names_used.items():
            imports = self._modules[module_name].imports
            used = [imports[name] for name in names if name in imports]
            lines |= {origin.line for origin in used if not self._is_ours(origin.module)}
        return lines

    def sources(self) -> list[str]:
        """The definitions' source: modules behind those that they use, each in its own order.

        Raises:
            RuntimeError: two definitions have the same name.
        """
        names = [name for _, name in self._names_used]
        if len(set(names)) < len(names):
            raise RuntimeError(f"two definitions of one name among {sorted(names)}")
        order = TopologicalSorter(self._modules_used).static_order()
        return [
            module.source(name)
            for module in (self._modules[module_name] for module_name in order)
            for name in module.definitions
            if (module.name, name) in self._names_used
        ]


class _Import(NamedTuple):
    module: str
    name: str  # in that module; empty where the module itself is imported
    line: str


class _Module:
    """What a module defines and imports at its top level."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._text = inspect.getsource(import_module(name))
        self._body = ast.parse(self._text).body

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Name -> its class, function or assignment, in the module's order."""
        nodes: dict[str, ast.stmt] = {}
        for node in self._body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                nodes[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                nodes |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        return nodes

    @cached_property
    def imports(self) -> dict[str, _Import]:
        """What is imported, by the name that it has in this module."""
        imports = {}
        for node in self._body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    imports[name] = _Import(alias.name, "", f"import {ast.unparse(alias)}")
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                for alias in node.names:
                    line = f"from {origin} import {ast.unparse(alias)}"
                    imports[alias.asname or alias.name] = _Import(origin, alias.name, line)
        return imports

    def _origin(self, node: ast.ImportFrom) -> str:
        package = import_module(self.name).__package__
        return resolve_name("." * node.level + (node.module or ""), package)

    def source(self, name: str) -> str:
        """A definition's text, with its decorators."""
        node = self.definitions[name]
        decorators = getattr(node, "decorator_list", [])
        first = min(part.lineno for part in (node, *decorators))
        return "\n".join(self._text.splitlines()[first - 1 : node.end_lineno])


def runtime_names(node: ast.AST) -> set[str]:
    """Names that a definition uses when it runs: all but those of its annotations."""
    annotations = {
        id(name)
        for part in ast.walk(node)
        for annotation in (getattr(part, "annotation", None), getattr(part, "returns", None))
        if annotation is not None
        for name in ast.walk(annotation)
    }
    return {
        name.id
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and id(name) not in annotations
    }
