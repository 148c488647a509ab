"""Passwords in addresses on the command line: nothing prints or saves them."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.command_line import program
from bermo_ray.command_line.options import OneTaskOptions
from bermo_ray.command_line.parsing import plain_options, resumed_options
from bermo_ray.errors import UserError
from bermo_ray.study import STUDY_FILE
from bermo_ray.tracking.addresses import full_address, log_in, take_password
from tests.support.studies import run_script

pytestmark = pytest.mark.usefixtures("no_login")
DATABASE = "postgresql://me:secret@host/runs"
HIDDEN = "postgresql://me:***@host/runs"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--tracking-ur", "http://me:secret@host:5000/" + "far/" * 20], "--tracking-ur"),
        (["--tracking-ur", DATABASE], "--tracking-ur"),
        (["--epochs", "mysql://me:secret@host/db"], "--epochs"),
        (["--tracking-uri", "http://me:secret@127.0.0.1:9"], "answers at http://127.0.0.1:9 ("),
        (["--storage", "s3://key:secret@bucket/x"], "--storage: the password in s3://key:***@buc"),
        (["--start", "s3://key:secret@bucket"], "--start: no folder 's3://key:***@bucket', and"),
        (["--set", "pruning.x=s3://key:secret@bucket"], "--set: unknown key 'pruning.x'"),
    ],
)
def test_mistakes_do_not_tell_a_password(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_script(monkeypatch, capsys, "l0_frontier", *options)
    assert code == 2
    assert line in err
    # A message may be wrapped: no part of the word is there either.
    assert not any(part in out + err for part in ("secret", "secre", "ecret"))
    assert list(tmp_path.iterdir()) == []


def test_a_storage_of_the_environment_is_refused_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BERMO_STORAGE", "s3://key:secret@bucket")
    monkeypatch.chdir(tmp_path)
    code, _, err = run_script(monkeypatch, capsys, "l0_frontier")
    assert code == 2
    assert err == (
        "error: --storage: the password in s3://key:***@bucket would be in Ray's files; leave it "
        "out and set it on every node, for s3 as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\n"
    )


def test_the_words_of_a_command_lose_their_passwords_first(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--tracking-uri=http://me:secret@host", "--storage", DATABASE, "--epochs", "2"]
    monkeypatch.setattr(sys, "argv", ["study.py", *words])
    seen: list[str] = []
    program.run_command(lambda: seen.extend(sys.argv))
    assert seen == ["study.py", "--tracking-uri=http://host", "--storage", HIDDEN, "--epochs", "2"]
    log_in("http://elsewhere")
    assert "MLFLOW_TRACKING_PASSWORD" not in os.environ
    log_in("http://host")
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "secret"
    assert full_address(HIDDEN) == DATABASE


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("postgresql://me:a secret@host/runs", "postgresql://me:***@host/runs"),
        ("http://me:a secret@host", "http://host"),
        ("--set=data.data_dir=s3://key:secret@bucket", "--set=data.data_dir=s3://key:***@bucket"),
        ("SELECT 'http://host' = reason, 'me@home'", "SELECT 'http://host' = reason, 'me@home'"),
    ],
)
def test_a_word_is_an_address_from_its_start(word: str, shown: str) -> None:
    assert take_password(word) == shown


def test_the_traceback_of_a_bug_has_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", None)
    monkeypatch.setattr(sys, "argv", ["study.py"])
    program.run_command(lambda: None)
    try:
        raise RuntimeError(f"lost {DATABASE}")
    except RuntimeError as error:
        sys.excepthook(RuntimeError, error, error.__traceback__)
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "Traceback (most recent call last):"
    assert err.splitlines()[-1] == f"RuntimeError: lost {HIDDEN}"


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """Saves a study ``s`` as it is saved when it starts with these options."""

    def save(**options: Any) -> OneTaskOptions:
        folder = tmp_path / "s"
        folder.mkdir()
        settings = plain_options(OneTaskOptions(name="s", runs=tmp_path, **options))
        content = {"kind": "k", "folder": str(folder), "created": 0.0, "settings": settings}
        (folder / STUDY_FILE).write_text(json.dumps(content))
        assert "secret" not in (folder / STUDY_FILE).read_text()
        return OneTaskOptions(resume=True, name="s", runs=tmp_path)

    return save


def test_a_resumed_study_takes_the_password_that_is_given_now(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = started(tracking_uri=DATABASE, overrides=("epochs=2", f"data.data_dir={DATABASE}"))
    assert json.loads((tmp_path / "s" / STUDY_FILE).read_text())["settings"]["overrides"] == [
        "epochs=2", f"data.data_dir={HIDDEN}",
    ]  # fmt: skip
    resumed = resumed_options("k", again)
    assert resumed.store.uri == HIDDEN
    with pytest.raises(UserError, match="tracking_uri: the password of .* is not kept"):
        full_address(resumed.store.uri)
    changed = DATABASE.replace("secret", "other")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", changed)
    assert full_address(resumed_options("k", again).store.uri) == changed
    given = OneTaskOptions(
        resume=True, name="s", runs=tmp_path, tracking_uri=take_password(DATABASE)
    )
    assert full_address(resumed_options("k", given).store.uri) == DATABASE


def test_the_address_of_a_resumed_study_must_be_the_same(started: Any, tmp_path: Path) -> None:
    started(tracking_uri="http://me:secret@host:5000")
    same = {"resume": True, "name": "s", "runs": tmp_path}
    for address in (None, "http://host:5000", "http://you:other@host:5000"):
        resumed = resumed_options("k", OneTaskOptions(tracking_uri=address, **same))
        assert resumed.store.uri == "http://host:5000"
    other = OneTaskOptions(tracking_uri="http://me:secret@elsewhere", **same)
    with pytest.raises(UserError) as caught:
        resumed_options("k", other)
    assert caught.value.problems == (
        "tracking_uri: got http://elsewhere, but s was started with http://host:5000",
    )
