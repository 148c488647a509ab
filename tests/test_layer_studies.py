"""The studies of layer dropping for real: through Ray, with what they leave behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bermo_ray import results, tracking
from bermo_ray.results.layer_counts import COUNTS, LOSSES
from bermo_ray.results.significance import mcnemar, right
from bermo_ray.tasks import registry
from bermo_ray.tasks.task import halves
from bermo_ray.training.layer_scores import layer_scores
from bermo_ray.trial import Trial
from tests.test_study import ROOT, finish, same_as_alone, start, uri

pytestmark = pytest.mark.slow


def study(name: str, runs: Path, backbone: str, *options: str) -> str:
    return finish(start(
        runs, "--name", "s", "--backbones", backbone, "--dev-rows", "60",
        "--learning-rate", "1e-3", *options, script=ROOT / "studies" / f"{name}.py",
    ))  # fmt: skip


def artifacts(runs: Path) -> set[str]:
    parent = tracking.find_study(uri(runs), "s")
    assert parent is not None
    return {a.path for a in tracking.client(uri(runs)).list_artifacts(parent.info.run_id)}


def test_strategies_by_count(deeper: str, tmp_path: Path) -> None:
    out = study(
        "layer_drop", tmp_path, deeper, "--tasks", "tense", "entities", "--counts", "1", "2",
        "--strategies", "top", "contribution", "--train-rows", "96",
    )  # fmt: skip
    assert "Layers by their scores" in out
    rows = results.load("s", uri(tmp_path)).to_pylist()
    assert len(rows) == 10
    by_key: dict[Any, Any] = {(r["task"], r["strategy"], r["count"]): r for r in rows}
    assert by_key["tense", "top", 2]["dropped"] == "[3, 4]"
    scores = layer_scores(Trial.from_json(by_key["tense", None, 0]["trial"])).to_pylist()
    similar = sorted(scores, key=lambda r: -r["contribution"])[:2]
    expected = sorted(r["layer"] for r in similar)
    assert json.loads(by_key["tense", "contribution", 2]["dropped"]) == expected
    for row in rows:
        assert row["layers"] == 4 - row["count"]
        assert row["latency"] > 0
        assert row["bytes"] == 4 * row["parameters"]
        assert row["second_half"] is not None
    assert by_key["tense", None, 0]["parameters"] - by_key["tense", "top", 2]["parameters"] == 2 * 8544  # fmt: skip # noqa: E501
    same_as_alone(by_key["tense", "top", 2])
    losses = pq.read_table(tmp_path / "s" / "losses.parquet")
    assert losses.schema == LOSSES
    assert losses.num_rows == 10
    assert artifacts(tmp_path) >= {"losses.parquet", "layer_scores.parquet", "strategies.png"}


def test_optimal_counts(tmp_path: Path) -> None:
    out = study(
        "optimal_layers", tmp_path, "embedded", "--tasks", "tense", "entities", "--epochs", "1",
        "--thresholds", "1", "3", "100", "--train-rows", "600",
    )  # fmt: skip
    assert "trying every count would take" in out
    table = results.load("s", uri(tmp_path))
    counts = pq.read_table(tmp_path / "s" / "layer_counts.parquet")
    assert counts.schema == COUNTS
    rows = [r for r in counts.to_pylist() if r["task"] == "tense"]
    assert [r["threshold"] for r in rows] == [1.0, 3.0, 100.0]
    assert rows[-1]["count"] == 5  # a hundred points: all but one layer
    runs = {(r["task"], r["count"]): r for r in table.to_pylist()}
    whole, short = runs["tense", 0], runs["tense", 5]
    assert rows[-1]["loss_first"] == pytest.approx(
        100 * (whole["first_half"] - short["first_half"])
    )
    assert rows[-1]["loss_second"] == pytest.approx(
        100 * (whole["second_half"] - short["second_half"])
    )
    second, task = halves(60)[1], registry.get("tense")
    found = [right(results.predictions(r["run_id"], uri(tmp_path)), task, second) for r in (whole, short)]  # fmt: skip # noqa: E501
    assert found[0] is not None
    assert found[1] is not None
    assert np.mean(found[0]) == pytest.approx(whole["second_half"])
    assert rows[-1]["p_value"] == pytest.approx(mcnemar(found[0], found[1]).p_value)
    assert artifacts(tmp_path) >= {"layer_counts.parquet", "layer_counts.png"}
