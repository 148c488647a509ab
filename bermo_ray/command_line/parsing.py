"""A study's options: from the command line, from an earlier start, and back to what to type."""

import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import tyro

from bermo_ray.command_line.options import StudyOptions
from bermo_ray.errors import UserError
from bermo_ray.language.tasks import TASKS as EMBEDDED_TASKS
from bermo_ray.models.fusion import FUSIONS
from bermo_ray.passwords import hide_password
from bermo_ray.tasks.registry import TASKS
from bermo_ray.tracking.store import STUDY_FILE

O = TypeVar("O", bound=StudyOptions)  # noqa: E741

# Options that do not describe the study itself, so may differ when it is resumed.
_PASSING_OPTIONS = {"resume", "dry_run", "name", "runs", "verbose"}
# Options that change no number.
_PLACES = {"storage", "tracking_uri", "concurrent", "fresh", "register", "system_metrics"}


def parse(options_type: type[O]) -> O:
    """The command line's options; ``--help`` tells each with its default."""
    about = f"{options_type.__doc__}\n\nBy default: {options_type.DEFAULT}."
    if options_type.PAPER is not None:
        about += f" With --paper: {options_type.PAPER}."
    about += f"\n\n{describe_choices()}"
    order_options(options_type)
    return tyro.cli(options_type, description=about, config=(tyro.conf.FlagCreatePairsOff,))


def describe_choices() -> str:
    """The names that options of every study take."""
    real = [name for name in TASKS if name not in EMBEDDED_TASKS and "/" not in name]
    return (
        f"Tasks of the embedded language: {', '.join(EMBEDDED_TASKS)}. Real tasks: "
        f"{', '.join(real)}, senteval/NAME, wikiann/LANGUAGE. Fusions: {', '.join(FUSIONS)}."
    )


# What people set most, and what all else comes behind: a study's own options stand between.
_FIRST_OPTIONS = ("task", "tasks", "backbone", "backbones", "fusions")
_NEXT_OPTIONS = ("paper", "seeds", "epochs", "gpus", "workers", "name", "dry_run", "resume")


def order_options(options_type: type[StudyOptions]) -> None:
    """Puts the fields of a class of options in the order in which ``--help`` tells them: those of
    the base class would come first, whatever their use. They are set by name alone."""
    shared = {option.name for option in fields(StudyOptions)}

    def rank(name: str) -> tuple[int, int]:
        for group, names in enumerate((_FIRST_OPTIONS, (), _NEXT_OPTIONS)):
            if name in names:
                return group, names.index(name)
        return (3, 0) if name in shared else (1, 0)

    ordered = sorted(options_type.__dataclass_fields__.items(), key=lambda item: rank(item[0]))
    options_type.__dataclass_fields__ = dict(ordered)


def resumed_options(kind: str, options: O) -> O:
    """The options that a study was started with; those given now must agree.

    Raises:
        UserError: no such study, one of another kind, or other options.
    """
    runs = options.runs.expanduser()
    name = options.name or _newest_study(kind, runs)
    content = _read_study(runs / name / STUDY_FILE)
    if content is None:
        raise UserError(f"resume: no study {name!r} in {runs}")
    problems = []
    if content["kind"] != kind:
        problems.append(f"name: {name} is a study of {content['kind']}, not of {kind}")
    given, saved = plain_options(options), content["settings"]
    defaults = plain_options(type(options)())
    for option in fields(options):
        if option.name in _PASSING_OPTIONS or given[option.name] == defaults[option.name]:
            continue
        if given[option.name] != saved.get(option.name):
            got, was = given[option.name], saved.get(option.name)
            problems.append(f"{option.name}: got {got}, but {name} was started with {was}")
    if set(saved) - set(given):
        problems.append(f"resume: {name} was started by another version; resume it with that")
    if problems:
        raise UserError(*problems)
    kept = {k: v for k, v in saved.items() if k not in _PASSING_OPTIONS}
    kept = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    return replace(options, **kept, name=name)


def _newest_study(kind: str, runs: Path) -> str:
    files = sorted(runs.glob(f"*/{STUDY_FILE}"), key=lambda file: file.stat().st_mtime)
    for file in reversed(files):
        content = _read_study(file)
        if content is not None and content["kind"] == kind:
            return file.parent.name
    raise UserError(f"resume: no {kind} study in {runs}")


def _read_study(file: Path) -> dict[str, Any] | None:
    """How a study was started; None where there is no such file, or one that says nothing of a
    study: another program's, or one that was cut off."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    is_study = isinstance(content, dict) and {"kind", "settings"} <= content.keys()
    return content if is_study else None


def describe_command(kind: str, options: StudyOptions) -> str:
    """What to type for the same numbers: the options that differ from their defaults, but for those
    that say where records lie."""
    words = ["bermo-ray", "study", kind]
    defaults = plain_options(type(options)(paper=options.paper)) | {"paper": False}
    for name, value in plain_options(options).items():
        if name in _PASSING_OPTIONS | _PLACES or value == defaults[name]:
            continue
        words.append(f"--{'set' if name == 'overrides' else name.replace('_', '-')}")
        if value is not True:
            words += map(str, value if isinstance(value, list) else [value])
    return shlex.join(words)


def shown_path(path: Path) -> str:
    """A path as a person would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _plain(value: Any) -> Any:
    if isinstance(value, Path | str):
        return hide_password(str(value))
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def plain_options(options: StudyOptions) -> dict[str, Any]:
    """Options as plain values, for JSON: as they are saved and shown."""
    return {option.name: _plain(getattr(options, option.name)) for option in fields(options)}
