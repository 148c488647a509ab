"""What the package imports is what it declares, and the other way round."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: Path) -> set[str]:
    """Distributions of all modules that are imported anywhere below a folder."""
    modules = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    outside = modules - set(sys.stdlib_module_names) - {"bermo_ray", "tests", "_measure"}
    homes = packages_distributions()
    return {normalize(name) for module in outside for name in homes[module]}


def declared(names: list[str]) -> set[str]:
    return {normalize(re.split(r"[\[<>=~! ]", name)[0]) for name in names}


def test_every_import_is_declared_and_every_dependency_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = declared(project["dependencies"])
    used = imported(ROOT / "bermo_ray") | imported(ROOT / "studies")
    used -= {"pydantic-core"}  # part of pydantic
    # MLflow's module belongs to three distributions of which one brings the others.
    used = {"mlflow" if name.startswith("mlflow-") else name for name in used}
    assert used == runtime


def test_the_version_stands_in_one_place() -> None:
    import bermo_ray

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert bermo_ray.__version__ == project["version"]
    source = (ROOT / "bermo_ray" / "__init__.py").read_text()
    assert project["version"] not in source


def test_what_is_tested_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = declared((ROOT / "constraints.txt").read_text().splitlines())
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    assert declared([*project["dependencies"], *extras]) <= pinned
