"""Pages of the documentation that are made from the code: the reference of the Python names, of the
command line, and of the results' columns. A hook of ``mkdocs build``."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import bermo_ray
from bermo_ray.record import SCHEMA

ROOT = Path(__file__).parents[1]
_COMMANDS = ("list", "table", "query", "verdicts", "report", "compare", "export", "unpack", "ui", "disk", "clean", "doctor")  # fmt: skip # noqa: E501


def on_files(files: Any, config: Any) -> Any:
    """MkDocs's hook: adds the pages to those of ``docs/``."""
    from mkdocs.structure.files import File

    pages = {
        "reference.md": write_reference(),
        "schema.md": write_schema(),
        "command_line.md": write_command_line(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def write_schema() -> str:
    """Every column of the results with its type, unit and meaning."""
    rows = []
    for field in SCHEMA:
        about = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        meaning = about.get("meaning", "").replace("|", "\\|")
        unit = f", in {about['unit']}" if about.get("unit") else ""
        rows.append(f"| `{field.name}` | {field.type} | {meaning}{unit} |")
    head = (
        "# Columns of the results\n\nOne row per trial: what `bermo_ray.load(STUDY)`, `bermo-ray "
        "table STUDY --json` and `trials` in SQL have.\n\n"
        "| column | type | meaning |\n|---|---|---|"
    )
    return "\n".join([head, *rows, ""])


def write_reference() -> str:
    """Every public name of ``bermo_ray`` with its signature and docstring."""
    parts = ["# Python\n\nWhat `import bermo_ray as br` gives, by name."]
    for name in bermo_ray.__all__:
        thing = getattr(bermo_ray, name)
        parts += [f"## {name}", *_describe(name, thing)]
    return "\n\n".join([*parts, ""])


def _describe(name: str, thing: Any) -> list[str]:
    if not callable(thing):
        return [inspect.getdoc(thing) or ""]
    parts = [f"```python\n{name}{_signature(thing)}\n```", _text(thing)]
    if inspect.isclass(thing):
        parts += _describe_fields(thing)
        for method, function in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(function):
                parts += [f"**{method}**`{_signature(function)}`", _text(function)]
    return parts


def _signature(thing: Any) -> str:
    if hasattr(thing, "model_fields"):
        return "(...)"  # its fields follow
    try:
        return str(inspect.signature(thing)).replace("bermo_ray.", "").replace("'", "")
    except ValueError:
        return "(...)"


def _text(thing: Any) -> str:
    """The docstring; its sections as blocks, so that Markdown keeps their lines."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", inspect.getdoc(thing) or "")
    prose, *sections = text.split("\n\nArgs:\n")
    block = f"\n\n```text\nArgs:\n{sections[0]}\n```" if sections else ""
    return prose.replace("<", "&lt;") + block


def _describe_fields(thing: Any) -> list[str]:
    fields = getattr(thing, "model_fields", None)
    if not fields:
        return []
    rows = []
    for name, field in fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | `{_default(field)}` | {meaning} |")
    return ["\n".join(["| field | default | meaning |", "|---|---|---|", *rows])]


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    return repr(field.get_default(call_default_factory=True))


def write_command_line() -> str:
    """What ``--help`` says of every command, and of a study."""
    parts = ["# Command line"]
    calls = [("bermo-ray", []), *((f"bermo-ray {name}", [name]) for name in _COMMANDS)]
    calls += [("bermo-ray study", ["study"])]
    calls += [("bermo-ray study l0_frontier", ["study", "l0_frontier"])]
    for title, words in calls:
        help_text = [] if words == ["study"] else ["--help"]
        parts += [f"## {title}", f"```text\n{_run_program(*words, *help_text)}\n```"]
    return "\n\n".join([*parts, ""])


def _run_program(*words: str) -> str:
    code = "from bermo_ray.command_line.commands import main; main()"
    environment = os.environ | {"COLUMNS": "90", "NO_COLOR": "1", "TERM": "dumb"}
    call = [sys.executable, "-c", code, *words]
    shown = subprocess.run(
        call, capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )
    return shown.stdout.strip()
