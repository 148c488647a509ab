"""From MLflow's runs to Arrow, and SQL over the table."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bermo_ray import record, results
from bermo_ray.errors import UserError
from bermo_ray.record import Report, Status
from bermo_ray.results.table import to_table
from bermo_ray.tracking import store
from bermo_ray.tracking.reader import StoredRun
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import L0, LayerDrop, Trial
from tests.support.records import open_recorder
from tests.support.result_rows import dropped_row, predictions_table, result_table


def run_of(trial: Trial, report: Report, run_id: str = "r") -> StoredRun:
    """A trial's run as the recorder writes it."""
    metrics, tags = record.to_mlflow(report)
    tags |= {"bermo.study": "s", "bermo.trial_id": trial.id, "bermo.recipe": trial.recipe}
    tags[record.TRIAL_TAG] = trial.to_json()
    return StoredRun(run_id, 1_000, 3_500, tags, metrics)


REPORT = Report(
    status=Status.COMPLETED, step=3, metric=0.5, metric_selection=0.4, metric_verification=0.6,
    remaining=0.25, dropped_layers=[5, 6],
    other_metrics={"f1": 0.5}, mixing_weights=[0.25, 0.75], weight_bytes=400, layers_left=4,
)  # fmt: skip


def test_a_row_has_what_was_measured_and_nulls_for_the_rest() -> None:
    trial = Trial(layer_drop=LayerDrop(count=2))
    table = to_table([run_of(trial, REPORT), run_of(Trial(pruning=L0(multiplier=7.0)), Report())])
    assert table.schema == results.SCHEMA == record.SCHEMA
    dropped, pruned = table.to_pylist()
    assert (dropped["method"], dropped["strategy"], dropped["layers_dropped"]) == (
        "dense",
        "top",
        2,
    )
    assert (dropped["dropped_layers"], dropped["other_metrics"]) == ([5, 6], [("f1", 0.5)])
    assert (dropped["mixing_weights"], dropped["weight_bytes"]) == ([0.25, 0.75], 400)
    assert (dropped["seconds"], dropped["multiplier"], dropped["loss"]) == (2.5, None, None)
    assert (dropped["metric_reported"], pruned["metric_reported"]) == (0.6, None)
    assert dropped["recipe"] == trial.replace(seed=9).recipe
    assert (pruned["status"], pruned["method"], pruned["multiplier"]) == ("running", "l0", 7.0)
    assert (pruned["dropped_layers"], pruned["layers_dropped"]) == ([], 0)
    assert to_table([]).schema == results.SCHEMA


def test_frontiers_keep_lists_and_maps() -> None:
    table = to_table([run_of(Trial(), REPORT, "a"), run_of(Trial(seed=1), REPORT, "b")])
    (merged,) = results.average_seeds(table).to_pylist()
    assert (merged["dropped_layers"], merged["other_metrics"]) == ([5, 6], [("f1", 0.5)])
    assert results.frontier(table).schema == results.SCHEMA


def test_sql_over_arrow() -> None:
    trials = to_table([run_of(Trial(), REPORT), run_of(Trial(pruning=L0()), REPORT)])
    sql = "SELECT method, max(metric) AS best FROM trials GROUP BY method ORDER BY 1"
    rows = results.query(sql, trials=trials).to_pylist()
    assert rows == [{"method": "dense", "best": 0.5}, {"method": "l0", "best": 0.5}]
    nested = "SELECT dropped_layers[2] AS layer, other_metrics['f1'] AS f1 FROM trials LIMIT 1"
    assert results.query(nested, trials=trials).to_pylist() == [{"layer": 6, "f1": 0.5}]


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
def test_bad_sql_is_one_line(
    sql: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret.csv").write_text("a\n1\n")
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        results.query(sql, trials=pa.table({"metric": [1.0]}))
    assert line in str(caught.value)


def test_the_store_is_the_one_in_runs_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    calls: list[Any] = []
    monkeypatch.setattr("bermo_ray.tracking.store.read_predictions", lambda *a: calls.append(a))
    results.predictions("abc")
    assert calls == [(f"sqlite:///{tmp_path}/runs/mlflow.db", "abc")]
    assert results.load_all().num_rows == 0
    with pytest.raises(UserError, match="can't read"):
        results.load("none")


def test_predictions_are_read_where_the_checkpoint_is_whatever_mlflow_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = predictions_table({3, 5})
    pq.write_table(answers, tmp_path / record.PREDICTIONS_FILE)

    def away(uri: str) -> None:
        raise UserError("tracking_uri: no MLflow server answers")

    monkeypatch.setattr(store, "connect", away)
    table = result_table(
        dropped_row(0, 0.9, run_id="unsent-00003", checkpoint=str(tmp_path)),
        dropped_row(1, 0.9, run_id="b", checkpoint=tmp_path.as_uri()),
        dropped_row(2, 0.8, run_id="c", checkpoint=str(tmp_path / "removed")),
        dropped_row(3, 0.8, run_id="d", checkpoint=None),
    )
    read = results.predictions_of(table, "http://nowhere:1")
    assert read("unsent-00003") == answers
    assert read("b") == answers
    assert read("c") is None
    assert read("d") is None


def test_what_is_not_known_of_predictions_leaves_the_other_numbers() -> None:
    table = result_table(dropped_row(0, 0.9), dropped_row(1, 0.895))
    (count,) = results.layer_counts(table, (1.0,), lambda run_id: None).to_pylist()
    assert (count["layers_dropped"], count["p_value"]) == (1, None)
    losses = results.layer_losses(table, lambda run_id: None).to_pylist()
    assert [(row["layers_dropped"], row["p_value"]) for row in losses] == [(0, None), (1, None)]


def test_predictions_of_a_complete_run_id_are_read_without_listing_all_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, trial = store_uri(tmp_path), Trial()
    recorder = open_recorder(uri, "s")
    recorder.on_start("0", trial)
    answers = predictions_table({1})
    pq.write_table(answers, tmp_path / record.PREDICTIONS_FILE)
    recorder.on_report("0", [REPORT], str(tmp_path))
    (tmp_path / record.PREDICTIONS_FILE).unlink()  # what MLflow has is a copy
    table = results.load("s", uri)
    run_id = table["run_id"][0].as_py()
    assert results.predictions(trial.id, uri) == answers
    monkeypatch.setattr(store, "all_trial_runs", lambda client: pytest.fail("listed"))
    assert results.predictions(run_id, uri) == answers
    assert results.predictions_of(table, uri)(run_id) == answers
    monkeypatch.setattr(store, "all_trial_runs", lambda client: [])
    with pytest.raises(UserError, match="no trial"):
        results.predictions("0" * 32, uri)
    store.connect(uri).delete_run(run_id)
    with pytest.raises(UserError, match="no trial"):
        results.predictions(run_id, uri)
