"""The one table of fields: reports both ways, MLflow's keys, Arrow's schema."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bermo_ray
from bermo_ray.record import (
    DECIDING,
    FIELDS,
    MEASUREMENTS,
    SCHEMA,
    TRIAL_TAG,
    Report,
    Status,
    row_from_mlflow,
    to_mlflow,
)
from bermo_ray.trial import Trial

FULL = Report(
    status=Status.DIVERGED, reason="why", step=7, epoch=1.5, metric=0.25, loss=math.inf,
    other_metrics={"f1": 0.5, "perplexity": math.inf}, mixing_weights=[0.1, 0.9],
    dropped_layers=[2, 3], nonzero_parameters=2**53 + 0, kept_by_matrix=[("0.query", 1, 2)],
    traceback="Traceback",
)  # fmt: skip


def test_a_report_survives_plain_values_and_what_was_not_measured_is_left_out() -> None:
    plain = FULL.to_dict()
    assert "loss" not in plain  # not finite
    assert plain["other_metrics"] == {"f1": 0.5}
    assert "remaining" not in plain
    again = Report.from_dict(plain | {"time_total_s": 3})
    assert again.to_dict() == plain
    assert again.status is Status.DIVERGED
    assert again.kept_by_matrix == [("0.query", 1, 2)]
    assert math.isnan(again.remaining)


def test_usable_means_completed_with_finite_numbers() -> None:
    report = Report(status=Status.COMPLETED, metric=0.5)
    assert report.usable("metric")
    assert not report.usable("metric", "remaining")
    assert not Report(status=Status.STOPPED, metric=0.5).usable("metric")


def test_mlflow_keeps_numbers_as_metrics_and_words_as_tags() -> None:
    metrics, tags = to_mlflow(FULL)
    assert metrics["metric"] == 0.25
    assert metrics["other_metrics/f1"] == 0.5
    assert (metrics["mixing_weights/00"], metrics["mixing_weights/01"]) == (0.1, 0.9)
    assert tags == {
        "bermo.status": "diverged", "bermo.reason": "why", "bermo.dropped_layers": "[2, 3]"
    }  # fmt: skip
    assert not {"kept_by_matrix", "traceback", "loss"} & set(metrics)
    halves = Report(step=1, metric=0.5, metric_selection=0.4, metric_verification=0.6, latency=0.1)
    once, _ = to_mlflow(halves, curves=False)
    assert once == {"latency": 0.1}


def test_a_row_gives_back_what_mlflow_keeps() -> None:
    metrics, tags = to_mlflow(FULL)
    row = row_from_mlflow("id", 0, 2500, tags | {TRIAL_TAG: Trial(seed=3).to_json()}, metrics)
    table = pa.Table.from_pylist([row], schema=SCHEMA)
    assert table.schema.names == [field.name for field in FIELDS]
    (again,) = table.to_pylist()
    assert (again["metric"], again["step"], again["seed"]) == (0.25, 7, 3)
    assert (again["method"], again["layers_dropped"], again["seconds"]) == ("dense", 2, 2.5)
    assert again["other_metrics"] == [("f1", 0.5)]
    assert again["mixing_weights"] == [0.1, 0.9]
    assert again["nonzero_parameters"] == 2**53


@pytest.mark.parametrize(
    ("measured", "reported"),
    [
        ({"metric": 0.7, "metric_verification": 0.6, "metric_test": 0.5}, 0.5),
        ({"metric": 0.7, "metric_selection": 0.8, "metric_verification": 0.6}, 0.6),
        ({"metric": 0.7, "metric_selection": 0.8, "metric_test": math.inf}, 0.7),
        ({"metric": 0.7, "metric_verification": 0.0}, 0.0),
        ({"metric_selection": 0.8}, None),
    ],
)
def test_what_chose_a_trial_is_not_what_is_reported_of_it(
    measured: dict[str, float], reported: float | None
) -> None:
    report = Report(**measured)
    expected = math.nan if reported is None else reported
    assert report.metric_reported == pytest.approx(expected, nan_ok=True)
    metrics, tags = to_mlflow(report)
    row = row_from_mlflow("id", 0, None, tags, metrics)
    assert row["metric_reported"] == reported


def test_every_column_says_what_it_is() -> None:
    for field in MEASUREMENTS:
        assert field.meaning, field.name
    keys = [(f.source, f.key) for f in FIELDS if f.source != "run"]
    assert len(set(keys)) == len(keys)
    assert set(DECIDING) == {
        "status", "step", "metric", "metric_selection", "metric_verification", "metric_test",
        "constant_metric", "remaining", "density", "layers_left",
    }  # fmt: skip
    assert FULL.for_search() == Report(status=Status.DIVERGED, step=7, metric=0.25)


@pytest.mark.parametrize("status", list(Status))
def test_statuses_end_or_go_on(status: Status) -> None:
    assert status.ended == (status not in ("running", "interrupted"))
    assert status.measured == (status in ("completed", "diverged"))


NEW_FIGURE = """
from pathlib import Path

from bermo_ray import results
from bermo_ray.record import DECIDING, Report, Status
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.study_run import open_study
from bermo_ray.tracking.store import connect, store_uri
from bermo_ray.trial import Trial

uri = store_uri(Path("runs"))
recorder = Recorder(uri, "s", open_study(uri, "k", "s", {}, "{}"))
recorder.on_start("0", Trial())
report = Report(status=Status.COMPLETED, step=3, metric=0.5, energy=12.5)
recorder.on_report("0", [Report.from_dict(report.to_dict())], "")
recorder.on_close()
recorder.wait()
table = results.load("s", uri)
assert table["energy"].to_pylist() == [12.5]
assert table.schema.field("energy").metadata[b"unit"] == b"J"
client = connect(uri)
history = client.get_metric_history(table["run_id"][0].as_py(), "energy")
assert [(m.step, m.value) for m in history] == [(3, 12.5)]
assert results.query("SELECT energy FROM trials", uri)["energy"].to_pylist() == [12.5]
assert "energy" in DECIDING and report.for_search().energy == 12.5
print("everywhere")
"""


def test_a_new_figure_is_one_line_and_is_then_in_mlflow_arrow_and_sql(tmp_path: Path) -> None:
    """A copy of the package with one line added to Report."""
    package = tmp_path / "bermo_ray"
    here = Path(bermo_ray.__file__).parent
    shutil.copytree(here, package, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    file = package / "record.py"
    source = file.read_text()
    line = '    energy: float = measurement("used in training", "J", curve=True, decides=True)\n'
    anchor = "    hardware: str = measurement("
    assert source.count(anchor) == 1
    file.write_text(source.replace(anchor, line + anchor))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    call = [sys.executable, "-c", NEW_FIGURE]
    done = subprocess.run(
        call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "everywhere\n", done.stderr
