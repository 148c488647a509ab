"""The studies of layer dropping for real: through Ray, with what they leave behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bermo_ray import results
from bermo_ray.results.inference_times import time_by_depth
from bermo_ray.results.schemas import COUNTS, LOSSES
from bermo_ray.results.significance import compare_predictions, mcnemar, right_or_wrong
from bermo_ray.tracking import store
from bermo_ray.tracking.store import store_uri
from bermo_ray.training.inference_time import INFERENCE_TIMES
from bermo_ray.training.layer_scores import layer_scores
from bermo_ray.trial import Trial
from tests.studies.test_l0_frontier import same_as_alone
from tests.support.studies import ROOT, finish_study, start_study

pytestmark = pytest.mark.ray


def study(name: str, runs: Path, backbone: str, *options: str) -> str:
    return finish_study(start_study(
        runs, "--name", "s", "--backbones", backbone, "--dev-rows", "60",
        "--learning-rate", "1e-3", *options, script=ROOT / "studies" / f"{name}.py",
    ))  # fmt: skip


def artifacts(runs: Path) -> set[str]:
    parent = store.find_study(store_uri(runs), "s")
    assert parent is not None
    return {a.path for a in store.connect(store_uri(runs)).list_artifacts(parent.info.run_id)}


def test_strategies_by_count(deeper: str, tmp_path: Path) -> None:
    out = study(
        "layer_drop", tmp_path, deeper, "--tasks", "tense", "entities", "--counts", "1", "2",
        "--strategies", "top", "contribution", "--train-rows", "96", "--seeds", "0",
    )  # fmt: skip
    assert "Layers by their scores" in out
    rows = results.load("s", store_uri(tmp_path)).to_pylist()
    assert len(rows) == 10
    by_key: dict[Any, Any] = {(r["task"], r["strategy"], r["layers_dropped"]): r for r in rows}
    assert by_key["tense", "top", 2]["dropped_layers"] == [3, 4]
    scores = layer_scores(Trial.from_json(by_key["tense", None, 0]["trial_json"])).to_pylist()
    similar = sorted(scores, key=lambda r: -r["contribution"])[:2]
    expected = sorted(r["layer"] for r in similar)
    assert by_key["tense", "contribution", 2]["dropped_layers"] == expected
    for row in rows:
        assert row["layers_left"] == 4 - row["layers_dropped"]
        assert row["latency"] > 0
        assert row["weight_bytes"] == 4 * row["parameters"]
        assert row["metric_verification"] is not None
    assert by_key["tense", None, 0]["parameters"] - by_key["tense", "top", 2]["parameters"] == 2 * 8544  # fmt: skip # noqa: E501
    same_as_alone(by_key["tense", "top", 2])
    losses = pq.read_table(tmp_path / "s" / "losses.parquet")
    assert losses.schema == LOSSES
    assert losses.num_rows == 10
    keys: dict[Any, Any] = {
        (r["task"], r["strategy"], r["layers_dropped"]): r for r in losses.to_pylist()
    }
    short = keys["tense", "top", 2]
    pair = [by_key["tense", None, 0], by_key["tense", "top", 2]]
    tables = [results.predictions(r["run_id"], store_uri(tmp_path)) for r in pair]
    assert short["p_value"] == compare_predictions(*tables)
    assert short["p_seed"] == 0
    times = pq.read_table(tmp_path / "s" / "inference_times.parquet")
    assert times.schema == INFERENCE_TIMES
    assert set(times["layers_left"].to_pylist()) == {4, 3, 2}
    assert set(times["rows"].to_pylist()) == {60}
    seconds = time_by_depth(times)
    assert short["time_saved"] == pytest.approx(1 - seconds[deeper, 2] / seconds[deeper, 4])
    assert artifacts(tmp_path) >= {"losses.parquet", "layer_scores.parquet", "strategies.png"}
    assert "BERT without its top half is a little worse" in " ".join(out.split())


def test_layers_of_fine_tuned_models_are_dropped_too(tmp_path: Path) -> None:
    options = (
        "--strategies", "top", "--counts", "3", "--from-fine-tuned", "--seeds", "0",
        "--train-rows", "600", "--epochs", "2",
    )  # fmt: skip
    out = study("layer_drop", tmp_path, "embedded", *options)
    assert "1 trial taken from s-teachers, not run again" in out
    rows = results.load("s", store_uri(tmp_path)).to_pylist()
    trials = [Trial.from_json(row["trial_json"]) for row in rows]
    assert len(trials) == 3
    (undropped,) = (row for row in rows if row["strategy"] is None)
    starts = [trial.warm_start for trial in trials if trial.layer_drop]
    assert set(starts) == {None, undropped["checkpoint"]}
    losses = pq.read_table(tmp_path / "s" / "losses.parquet")
    assert losses["strategy"].to_pylist() == ["none", "top", "top, fine-tuned before"]


def test_optimal_counts(tmp_path: Path) -> None:
    out = study(
        "optimal_layers", tmp_path, "embedded", "--tasks", "tense", "entities", "--epochs", "1",
        "--thresholds", "1", "3", "100", "--train-rows", "600", "--seeds", "0",
    )  # fmt: skip
    assert "trying every count would take" in out
    table = results.load("s", store_uri(tmp_path))
    counts = pq.read_table(tmp_path / "s" / "layer_counts.parquet")
    assert counts.schema == COUNTS
    rows = [r for r in counts.to_pylist() if r["task"] == "tense"]
    assert [r["threshold"] for r in rows] == [1.0, 3.0, 100.0]
    assert rows[-1]["layers_dropped"] == 5  # a hundred points: all but one layer
    runs = {(r["task"], r["layers_dropped"]): r for r in table.to_pylist()}
    undropped, short = runs["tense", 0], runs["tense", 5]
    assert rows[-1]["loss_selection"] == pytest.approx(
        100 * (undropped["metric_selection"] - short["metric_selection"])
    )
    assert rows[-1]["loss_verification"] == pytest.approx(
        100 * (undropped["metric_verification"] - short["metric_verification"])
    )
    tables = [results.predictions(r["run_id"], store_uri(tmp_path)) for r in (undropped, short)]
    first, second = (right_or_wrong(table.filter(table["verifies"])) for table in tables)
    assert first is not None
    assert second is not None
    assert np.mean(first) == pytest.approx(undropped["metric_verification"])
    assert rows[-1]["p_value"] == pytest.approx(mcnemar(first, second).p_value)
    assert artifacts(tmp_path) >= {"layer_counts.parquet", "layer_counts.png"}
