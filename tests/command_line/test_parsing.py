"""What a study was started with, read back."""

import json
import os
from pathlib import Path

import pytest

from bermo_ray.command_line.options import OneTaskOptions
from bermo_ray.command_line.parsing import plain_options, resumed_options
from bermo_ray.errors import UserError
from bermo_ray.tracking.store import STUDY_FILE


def save(runs: Path, name: str, seconds: float, text: str | None = None, kind: str = "k") -> None:
    """A study's file of that age; ``text``: what it says instead."""
    file = runs / name / STUDY_FILE
    file.parent.mkdir()
    settings = plain_options(OneTaskOptions(name=name, runs=runs))
    file.write_text(json.dumps({"kind": kind, "settings": settings}) if text is None else text)
    os.utime(file, (seconds, seconds))


def test_the_newest_study_is_resumed_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, "older", 1)
    save(tmp_path, "newer", 2)
    save(tmp_path, "other", 3, kind="another")
    for number, text in enumerate(["", '{"kind": "k", "sett', "[1]", '{"kind": "k"}', "\0"]):
        save(tmp_path, f"broken{number}", 4 + number, text)
    (tmp_path / "folder" / STUDY_FILE).mkdir(parents=True)
    options = OneTaskOptions(resume=True, runs=tmp_path)
    assert resumed_options("k", options).name == "newer"
    with pytest.raises(UserError, match=f"^resume: no third study in {tmp_path}$"):
        resumed_options("third", options)


@pytest.mark.parametrize("text", ["", "{}"])
def test_a_study_whose_file_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    save(tmp_path, "s", 1, text)
    with pytest.raises(UserError, match=f"^resume: no study 's' in {tmp_path}$"):
        resumed_options("k", OneTaskOptions(resume=True, name="s", runs=tmp_path))
