"""Trials out of the store: both ways the same, older schemas too, and SQL over them."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from bermo_ray import results, tracking
from bermo_ray.errors import UserError
from bermo_ray.results import SCHEMA, store, table
from bermo_ray.trial import LayerDrop, Pruning, Trial
from tests.test_cli import FakeTune


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two studies of one store; the first has a dropped layer, further metrics and a failure."""
    found = tracking.store_uri(tmp_path_factory.mktemp("runs"))
    for study, trials in (
        ("one", [Trial(layer_drop=LayerDrop(count=2)), Trial(pruning=Pruning()), Trial(seed=1)]),
        ("two", [Trial(pruning=Pruning(), seed=3)]),
    ):
        parent = tracking.open_study(found, "layer_drop", study, {}, "{}")
        tracker = tracking.Tracker(found, study, parent)
        for number, trial in enumerate(trials):
            tune = FakeTune(f"{study}{number}", trial)
            tracker.on_trial_start(0, [], tune)
            report = {"step": 3, "epoch": 1.0, "metric": 0.5 + number / 10, "remaining": 0.25,
                      "layers": 4, "latency": 0.01, "bytes": 400, "parameters": 100,
                      "others": {"f1": 0.5}, "first_half": 0.4, "second_half": 0.6}  # fmt: skip
            end = {"final": True, "status": "completed", "dropped": [5, 6] if number == 0 else []}
            if number == 2:
                report, end = {"step": 0}, {"final": True, "status": "failed", "reason": "lost"}
            tracker.on_trial_result(0, [], tune, report | end)
        tracker.on_experiment_end([])
    return found


def test_the_tables_and_the_client_give_the_same(uri: str) -> None:
    straight = results.load("one", uri)
    parent = tracking.find_study(uri, "one")
    assert parent is not None
    runs = tracking.trial_runs(tracking.client(uri), parent.info.run_id)
    assert straight.equals(table._table(store._records(runs)))
    rows = straight.to_pylist()
    assert [r["status"] for r in rows] == ["completed", "completed", "failed"]
    assert (rows[0]["strategy"], rows[0]["count"], rows[0]["dropped"]) == ("top", 2, "[5, 6]")
    assert (rows[1]["strategy"], rows[1]["count"], rows[1]["method"]) == (None, 0, "l0")
    assert rows[0]["others"] == '{"f1": 0.5}'
    assert (rows[0]["first_half"], rows[0]["latency"], rows[0]["bytes"]) == (0.4, 0.01, 400)
    assert rows[0]["recipe"] == Trial(layer_drop=LayerDrop(count=2), seed=9).recipe
    assert results.load_all(uri)["study"].to_pylist() == ["one"] * 3 + ["two"]


def test_of_studies_of_one_name_the_newest_counts_and_deleted_runs_do_not(uri: str) -> None:
    again = tracking.open_study(uri, "layer_drop", "twice", {}, "{}")
    tracking.client(uri).set_terminated(again)
    newer = tracking.open_study(uri, "layer_drop", "twice", {}, "{}")
    tracker = tracking.Tracker(uri, "twice", newer)
    tune = FakeTune("x", Trial(seed=5))
    tracker.on_trial_start(0, [], tune)
    assert results.load("twice", uri)["seed"].to_pylist() == [5]
    tracking.client(uri).delete_run(results.load("twice", uri)["run_id"][0].as_py())
    assert results.load("twice", uri).num_rows == 0


def test_a_study_of_an_earlier_schema_stays_readable(uri: str, tmp_path: Path) -> None:
    """Without what version 3 added: no recipe, no layers, no halves."""
    copy = tmp_path / tracking.DATABASE
    copy.write_bytes(Path(uri.removeprefix("sqlite:///")).read_bytes())
    with sqlite3.connect(copy) as database:
        database.execute("DELETE FROM tags WHERE key IN ('bermo.recipe', 'bermo.dropped')")
        added = "('layers', 'latency', 'bytes', 'first_half', 'second_half')"
        database.execute(f"DELETE FROM latest_metrics WHERE key IN {added}")
    found = results.load("one", f"sqlite:///{copy}")
    assert found.schema == SCHEMA
    new = results.load("one", uri)
    assert found["recipe"].equals(new["recipe"])  # made of the Trial itself
    assert found["metric"].equals(new["metric"])
    assert found["layers"].null_count == 3
    assert results.frontier(found).num_rows == 2


def test_a_nan_in_the_store_is_null(uri: str, tmp_path: Path) -> None:
    copy = tmp_path / tracking.DATABASE
    copy.write_bytes(Path(uri.removeprefix("sqlite:///")).read_bytes())
    with sqlite3.connect(copy) as database:
        database.execute("UPDATE latest_metrics SET is_nan = 1, value = 0 WHERE key = 'metric'")
    assert results.load("two", f"sqlite:///{copy}")["metric"].to_pylist() == [None]


def test_sql_over_arrow(uri: str) -> None:
    trials = results.load("one", uri)
    found = results.query("SELECT method, max(metric) AS best FROM trials GROUP BY method ORDER BY 1", trials=trials)  # fmt: skip # noqa: E501
    assert found.to_pylist() == [{"method": "dense", "best": 0.5}, {"method": "l0", "best": 0.6}]
    both = results.query(
        "SELECT a.seed FROM one a JOIN two b USING (method) WHERE a.status = 'completed'",
        one=trials,
        two=results.load("two", uri),
    )
    assert both.num_rows == 1
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
