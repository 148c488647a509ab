"""Source that is collected runs on its own, and holds nothing that it does not need."""

import ast
import sys
from pathlib import Path

import pytest

from bermo_ray.export.source_collector import SourceCollector, runtime_names

BASE = """
from math import pi, tau
UNUSED = 1
RADIUS = 2
class Settings: ...
class Shape:
    def area(self): return 0
def helper(x): return x * RADIUS
"""
CIRCLE = """
import math as m
import os
from my_shapes.base import Settings, Shape
from .base import helper as _unused_alias, helper
from math import pi
KINDS = {"circle": "Circle"}
def twice(function): return lambda *a: 2 * function(*a)
class Circle(Shape):
    def area(self, settings: Settings = None) -> Settings:
        return pi * helper(1) ** 2 + m.floor(0.5)
    def name(self): return KINDS["circle"]
@twice
def doubled(x): return helper(x)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "my_shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text("from my_shapes.circle import Circle, doubled\n")
    (folder / "base.py").write_text(BASE)
    (folder / "circle.py").write_text(CIRCLE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_shapes"
    for name in [n for n in sys.modules if n.partition(".")[0] == "my_shapes"]:
        del sys.modules[name]


def test_definitions_come_with_what_they_use(package: str) -> None:
    collector = SourceCollector(package)
    assert collector.add(package, "Circle") == "my_shapes.circle"  # through the package's import
    assert collector.add(package, "doubled") == "my_shapes.circle"
    assert collector.external_imports() == {"import math as m", "from math import pi"}
    sources = collector.sources()
    names = [next(iter(runtime)) for runtime in map(_defined, sources)]
    assert names == ["RADIUS", "Shape", "helper", "KINDS", "twice", "Circle", "doubled"]
    text = "from __future__ import annotations\nimport math as m\nfrom math import pi\n"
    scope: dict[str, object] = {}
    exec(text + "\n\n".join(sources), scope)
    assert scope["Circle"]().area() == pytest.approx(4 * 3.141592653589793)  # type: ignore[operator]
    assert scope["doubled"](3) == 12  # type: ignore[operator]


def _defined(source: str) -> list[str]:
    (node,) = ast.parse(source).body
    return [node.targets[0].id if isinstance(node, ast.Assign) else node.name]  # type: ignore[attr-defined]


def test_what_no_package_of_ours_defines_is_nothing(package: str) -> None:
    collector = SourceCollector(package)
    assert collector.add("my_shapes.circle", "pi") is None
    assert collector.add("my_shapes.circle", "os") is None
    assert collector.add("my_shapes.circle", "nowhere") is None
    assert collector.sources() == []


def test_names_in_annotations_are_not_used_when_it_runs() -> None:
    node = ast.parse("def f(a: A, *b: B, c: C = c0) -> D:\n    e: E = g(a)\n    return e")
    assert runtime_names(node) == {"a", "c0", "e", "g"}
