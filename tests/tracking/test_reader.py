"""Trials out of the store: both ways the same, and SQL over them."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from bermo_ray import results
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status, row_from_mlflow
from bermo_ray.tracking import reader, store
from bermo_ray.tracking.store import DATABASE, store_uri
from bermo_ray.trial import L0, LayerDrop, Trial
from tests.support.records import open_recorder, write_study


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two studies of one store; the first has a dropped layer, further metrics and a failure."""
    address = store_uri(tmp_path_factory.mktemp("runs"))
    first = Report(
        status=Status.COMPLETED, step=3, epoch=1.0, metric=0.5, remaining=0.25, layers_left=4,
        latency=0.01, weight_bytes=400, parameters=100, other_metrics={"f1": 0.5},
        metric_selection=0.4, metric_verification=0.6, dropped_layers=[5, 6],
        mixing_weights=[0.25, 0.75],
    )  # fmt: skip
    second = Report(status=Status.COMPLETED, step=3, metric=0.6, remaining=0.25)
    lost = Report(status=Status.FAILED, reason="lost")
    trials = [(Trial(layer_drop=LayerDrop(count=2)), [first]), (Trial(pruning=L0()), [second])]
    write_study(address, "one", [*trials, (Trial(seed=1), [lost])], "layer_drop")
    write_study(address, "two", [(Trial(pruning=L0(), seed=3), [second])], "layer_drop")
    return address


def test_curves_are_the_same_from_the_tables_and_from_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = store_uri(tmp_path)
    reports = [Report(step=step, epoch=step / 2, metric=step / 10) for step in (1, 2)]
    end = Report(step=3, status=Status.COMPLETED, metric=0.9, loss=2.0)
    write_study(address, "s", [(Trial(), [*reports, end]), (Trial(seed=1), [end])])
    run_ids = results.load("s", address)["run_id"].to_pylist()
    curves = reader.read_curves(address, run_ids, ("epoch", "metric"))
    assert curves[run_ids[0]] == {"epoch": {1: 0.5, 2: 1.0}, "metric": {1: 0.1, 2: 0.2, 3: 0.9}}
    assert curves[run_ids[1]] == {"epoch": {}, "metric": {3: 0.9}}
    monkeypatch.setattr(reader, "SQLITE", "no such store")
    assert reader.read_curves(address, run_ids, ("epoch", "metric")) == curves


def test_the_tables_and_the_client_give_the_same(uri: str) -> None:
    straight = results.load("one", uri)
    parent = store.find_study(uri, "one")
    assert parent is not None
    runs = reader._from_client(store.trial_runs(store.connect(uri), parent.info.run_id))
    rows = [row_from_mlflow(r.run_id, r.started, r.ended, r.tags, r.metrics) for r in runs]
    assert straight.equals(pa.Table.from_pylist(rows, schema=results.SCHEMA))
    rows = straight.to_pylist()
    assert [r["status"] for r in rows] == ["completed", "completed", "failed"]
    assert [r["reason"] for r in rows] == [None, None, "lost"]
    assert (rows[0]["strategy"], rows[0]["layers_dropped"]) == ("top", 2)
    assert rows[0]["dropped_layers"] == [5, 6]
    assert (rows[1]["strategy"], rows[1]["layers_dropped"], rows[1]["method"]) == (None, 0, "l0")
    assert rows[0]["other_metrics"] == [("f1", 0.5)]
    assert rows[0]["mixing_weights"] == [0.25, 0.75]
    assert rows[0]["metric_name"] == "accuracy"
    assert rows[0]["workers"] == 1
    assert (rows[0]["metric_selection"], rows[0]["latency"]) == (0.4, 0.01)
    assert rows[0]["weight_bytes"] == 400
    assert rows[0]["recipe"] == Trial(layer_drop=LayerDrop(count=2), seed=9).recipe
    assert rows[0]["trial_id"] == Trial(layer_drop=LayerDrop(count=2)).id
    assert results.load_all(uri)["study"].to_pylist() == ["one"] * 3 + ["two"]


def test_of_studies_of_one_name_the_newest_counts_and_deleted_runs_do_not(uri: str) -> None:
    open_recorder(uri, "twice")
    newer = open_recorder(uri, "twice")
    newer.on_start("x", Trial(seed=5))
    assert results.load("twice", uri)["seed"].to_pylist() == [5]
    store.connect(uri).delete_run(results.load("twice", uri)["run_id"][0].as_py())
    assert results.load("twice", uri).num_rows == 0


def test_a_nan_in_the_store_is_null(uri: str, tmp_path: Path) -> None:
    copy = tmp_path / DATABASE
    copy.write_bytes(Path(uri.removeprefix("sqlite:///")).read_bytes())
    with sqlite3.connect(copy) as database:
        database.execute("UPDATE latest_metrics SET is_nan = 1, value = 0 WHERE key = 'metric'")
    assert results.load("two", f"sqlite:///{copy}")["metric"].to_pylist() == [None]


def test_sql_over_arrow(uri: str) -> None:
    trials = results.load("one", uri)
    sql = "SELECT method, max(metric) AS best FROM trials GROUP BY method ORDER BY 1"
    assert results.query(sql, trials=trials).to_pylist() == [
        {"method": "dense", "best": 0.5},
        {"method": "l0", "best": 0.6},
    ]
    both = results.query(
        "SELECT a.seed FROM one a JOIN two b USING (method) WHERE a.status = 'completed'",
        one=trials,
        two=results.load("two", uri),
    )
    assert both.num_rows == 1
    layers = "SELECT unnest(dropped_layers) AS layer FROM trials"
    assert results.query(layers, trials=trials)["layer"].to_pylist() == [5, 6]
    f1 = "SELECT other_metrics['f1'] AS f1 FROM trials WHERE seed = 0 AND method = 'dense'"
    assert results.query(f1, trials=trials)["f1"].to_pylist() == [0.5]
    every = (
        "SELECT study, count(*) AS n FROM trials WHERE status = 'completed' GROUP BY 1 ORDER BY 1"
    )
    assert results.query(every, uri)["n"].to_pylist() == [2, 1]


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELEC 1", "sql: Parser Error"),
        ("SELECT metrik FROM trials", 'Referenced column "metrik" not found'),
        ("SELECT * FROM nowhere", "Table with name nowhere does not exist"),
        ("SELECT * FROM 'secret.csv'", "sql: "),
        ("", "sql: the statement gives no rows"),
    ],
)
def test_bad_sql_is_one_line(sql: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip # noqa: E501
    monkeypatch.chdir(tmp_path)
    Path("secret.csv").write_text("a\n1\n")
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        results.query(sql, trials=pa.table({"metric": [1.0]}))
    assert line in str(caught.value)


def test_what_is_not_there_is_one_line(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no study 'none' in"):
        results.load("none", uri)
    with pytest.raises(UserError, match="can't read"):
        results.load("one", f"sqlite:///{tmp_path}/absent.db")
    assert results.load_all(f"sqlite:///{tmp_path}/absent.db").num_rows == 0
    (tmp_path / "broken.db").write_text("no database")
    with pytest.raises(UserError, match="can't read"):
        results.load("one", f"sqlite:///{tmp_path}/broken.db")


KILLED_WRITER = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")  # pages go to the file before the transaction ends
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE tags SET value = value || hex(zeroblob(20000))")
database.execute("UPDATE runs SET name = hex(zeroblob(20000))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_store_whose_writer_was_killed_within_a_transaction_is_read(tmp_path: Path) -> None:
    uri = store_uri(tmp_path)
    report = Report(status=Status.COMPLETED, step=1, metric=0.5, remaining=0.5)
    write_study(uri, "s", [(Trial(), [report])])
    before = results.load("s", uri)
    file = uri.removeprefix("sqlite:///")
    subprocess.run([sys.executable, "-c", KILLED_WRITER, file], check=False)
    assert Path(f"{file}-journal").is_file()
    assert results.load("s", uri).equals(before)
