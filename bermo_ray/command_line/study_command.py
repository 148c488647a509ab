"""``bermo-ray study NAME``: the scripts of ``studies/``, which ship in the package."""

import ast
import importlib.util
import runpy
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from bermo_ray.errors import UserError, unknown


def find_folder() -> Path:
    """Where the scripts lie."""
    return Path(str(files("bermo_ray") / "studies")).resolve()


def find_studies() -> dict[str, str]:
    """The question of each study, the first line of its script, by its name."""
    questions = {}
    for file in sorted(find_folder().glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        questions[file.stem] = text.partition("\n")[0]
    return questions


def describe_studies() -> str:
    """All studies with their questions, a line each."""
    questions = find_studies()
    indent = max(map(len, questions), default=0) + 4
    columns = shutil.get_terminal_size().columns
    lines = [
        textwrap.fill(f"  {name:<{indent - 2}}{question}", columns, subsequent_indent=" " * indent)
        for name, question in questions.items()
    ]
    head = "usage: bermo-ray study NAME [options]; NAME --help tells the options"
    return "\n".join([head, "", *lines])


def run_study_script(words: Sequence[str]) -> None:
    """Runs the script of a study as ``python studies/NAME.py`` does.

    Args:
        words: The study's name, or the file of one of your own, and its options.

    Raises:
        UserError: there is no such study.
    """
    name, *options = words or ["--help"]
    if name in ("-h", "--help"):
        print(describe_studies())
        return
    sys.argv = [f"bermo-ray study {name}", *options]
    if name.endswith(".py") and Path(name).is_file():
        runpy.run_path(name, run_name="__main__")
        return
    studies = find_studies()
    if name not in studies:
        raise UserError(unknown("study", name, list(studies)))
    _run_as_main(find_folder() / f"{name}.py")


def _run_as_main(file: Path) -> None:
    """Runs a script as the main module, where its docstrings are looked up; unlike runpy it leaves
    the words alone that stand for the program in ``--help``."""
    spec = importlib.util.spec_from_file_location("__main__", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["__main__"] = module
    spec.loader.exec_module(module)
