"""Logins in addresses: used, and nowhere to be seen."""

import os
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.system_metrics import system_metrics_monitor

from bermo_ray.errors import UserError
from bermo_ray.tracking import store
from bermo_ray.tracking.addresses import full_address, log_in, login_headers, take_password
from bermo_ray.tracking.store import Store, store_uri
from bermo_ray.tracking.system_metrics import record_system_metrics
from tests.support.servers import serve_behind_login

pytestmark = pytest.mark.usefixtures("no_login")
DATABASE = "postgresql://me:se%40cret@host/runs"
HIDDEN = "postgresql://me:***@host/runs"


def get_login() -> tuple[str | None, str | None]:
    return tuple(os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("address", "clean", "login"),
    [
        ("http://me:secret@host:5000", "http://host:5000", ("me", "secret")),
        ("https://m%40e:se%2Fcr%3Aet@host/x", "https://host/x", ("m@e", "se/cr:et")),
        ("http://me:se:c/ret@host:5000", "http://host:5000", ("me", "se:c/ret")),
        ("http://me@host", "http://host", ("me", None)),
        ("http://host:5000", "http://host:5000", (None, None)),
        ("http://host/me@home", "http://host/me@home", (None, None)),
    ],
)
def test_the_login_of_a_server_becomes_that_of_this_process(
    tmp_path: Path, address: str, clean: str, login: tuple[str, str]
) -> None:
    assert store_uri(tmp_path, address) == clean
    assert store_uri(tmp_path, clean) == clean
    log_in("http://elsewhere")
    assert get_login() == (None, None)
    log_in(clean + "/")
    assert get_login() == login


def test_the_login_in_an_address_is_that_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "another server's")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@host")
    assert Store(tmp_path).uri == "http://host"
    log_in("http://host")
    assert get_login() == ("me", "secret")


def test_the_password_of_a_database_is_put_back_where_it_is_opened(tmp_path: Path) -> None:
    store = Store(tmp_path, DATABASE)
    assert store.uri == HIDDEN
    assert "cret" not in repr(store)
    assert full_address(HIDDEN) == DATABASE
    assert store_uri(tmp_path, HIDDEN) == HIDDEN  # what is hidden already hides nothing else
    assert full_address(HIDDEN) == DATABASE
    take_password(DATABASE.replace("se%40cret", "changed"))
    assert full_address(HIDDEN) == "postgresql://me:changed@host/runs"
    assert get_login() == (None, None)


def test_a_password_that_this_process_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@other/runs")
    line = "tracking_uri: the password of postgresql://me:[*]{3}@host/runs is not kept; give the"
    with pytest.raises(UserError, match=f"^{line} [^\n]*$"):
        full_address(HIDDEN)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", DATABASE)
    assert full_address(HIDDEN) == DATABASE


def test_mlflow_gets_the_password_of_a_database_and_errors_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_client(uri: str) -> Any:
        raise mlflow.MlflowException(f"no database at {uri}\nand more")

    monkeypatch.setattr(mlflow, "MlflowClient", open_client)
    with pytest.raises(UserError) as caught:
        store.connect(DATABASE)
    assert caught.value.problems == (f"tracking_uri: can't open {HIDDEN}: no database at {HIDDEN}",)
    assert DATABASE in str(caught.value.__cause__)  # it was asked with the password


def test_a_database_without_its_driver_is_one_line() -> None:
    line = r"tracking_uri: can't open nosuch://me:\*\*\*@host/runs: [^\n]*"
    with pytest.raises(UserError, match=f"^{line}$"):
        store.connect("nosuch://me:secret@host/runs")


def test_system_metrics_are_written_with_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Monitor:
        def __init__(self, *_: object, tracking_uri: str, **options: object) -> None:
            asked.append(tracking_uri)

        def start(self) -> None: ...
        def finish(self) -> None: ...

    monkeypatch.setattr(system_metrics_monitor, "SystemMetricsMonitor", Monitor)
    with record_system_metrics(take_password(DATABASE), "run"):
        assert asked == [DATABASE]


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"USERNAME": "me", "PASSWORD": "secret", "TOKEN": "t"}, "Basic bWU6c2VjcmV0"),
        ({"TOKEN": "t"}, "Bearer t"),
        ({"PASSWORD": "secret"}, None),
    ],
)
def test_a_login_is_sent_as_mlflow_sends_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], header: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    assert login_headers("http://host").get("Authorization") == header


def test_a_server_behind_a_login_is_asked_with_it() -> None:
    with serve_behind_login("me", "se/cret") as (host, refused):
        client = store.connect(f"http://me:se%2Fcret@{host}")
        assert client.search_experiments() == []
        assert client.tracking_uri == f"http://{host}"
        assert refused == []
        os.environ["MLFLOW_TRACKING_PASSWORD"] = "another server's"
        assert store.connect(f"http://{host}").search_experiments() == []
        with pytest.raises(UserError) as caught:
            store.connect(f"http://me:wrong@{host}")
        assert refused == ["/health"]
    assert str(caught.value) == (
        f"tracking_uri: no MLflow server answers at http://{host} (Unauthorized); set "
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    )


def test_a_port_that_is_none_is_one_line() -> None:
    with pytest.raises(UserError, match="^tracking_uri: no MLflow server answers at [^\n]*$"):
        store.connect("http://host:port")
