import pytest

from bermo_ray.errors import UserError
from bermo_ray.passwords import hide_password


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # Web addresses lose their login, the user too: it may be a token.
        ("http://me:secret@host:5000", "http://host:5000"),
        ("https://me:secret@host/path", "https://host/path"),
        ("HTTP://me:secret@host", "HTTP://host"),
        ("https://secret@host", "https://host"),
        ("http://me:se@cret@host", "http://host"),
        ("http://me:se%2Fcret@[::1]:5000/", "http://[::1]:5000/"),
        ("http://me:se/cret@host:5000", "http://host:5000"),
        # Others keep what says where and who.
        ("postgresql://me:secret@host/runs", "postgresql://me:***@host/runs"),
        ("mysql+pymysql://me:se/cr@et@host:3306/runs", "mysql+pymysql://me:***@host:3306/runs"),
        ("s3://key:sec+ret@bucket/folder", "s3://key:***@bucket/folder"),
        ("redis://:secret@host", "redis://:***@host"),
        ("my_store://me:secret@host", "my_store://me:***@host"),
        # Settings that are named like a secret.
        ("postgresql://host/runs?user=me&password=secret", "postgresql://host/runs?user=me&password=***"),
        ("http://host:5000/?access_token=secret#x", "http://host:5000/?access_token=***"),
        ("s3://bucket?secret_key=secret&region=eu", "s3://bucket?secret_key=***&region=eu"),
        # Wherever they stand in a text.
        ("--tracking-uri=http://me:secret@host", "--tracking-uri=http://host"),
        ("can't open 'mysql://me:secret@host/a': why", "can't open 'mysql://me:***@host/a': why"),
        ("http://a:secret@b and mysql://c:secret@d", "http://b and mysql://c:***@d"),
        ("http://a:secret@b\nmysql://c:secret@d", "http://b\nmysql://c:***@d"),
    ],
)  # fmt: skip
def test_no_password_is_shown(text: str, shown: str) -> None:
    assert hide_password(text) == shown
    assert hide_password(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////home/me/runs/mlflow.db",
        "sqlite:////tmp/a:b@c/mlflow.db",
        "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning",
        "http://host:5000/people/me@home",
        "http://[::1]:5000/people/me@home",
        "postgresql://me@host/runs",
        "s3://bucket/folder@2024",
        "abfs://container@account/folder",
        "file:///a:b@c",
        "runs/mlflow.db",
        "SELECT fusion FROM trials WHERE metric > 0.5 -- me:you@home",
    ],
)
def test_what_has_no_password_stays_as_it_is(text: str) -> None:
    assert hide_password(text) == text


def test_no_error_has_a_password() -> None:
    error = UserError(
        "storage: s3://key:secret@bucket is away", "tracking_uri: http://a:b@c is not"
    )
    assert error.problems == (
        "storage: s3://key:***@bucket is away",
        "tracking_uri: http://c is not",
    )
    assert "secret" not in str(error)
