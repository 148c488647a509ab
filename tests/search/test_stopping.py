"""A trial that its plan gives up, for real: through Tune, into MLflow."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results, tracking
from bermo_ray.search import cluster, tuner
from bermo_ray.search.plan import Grid
from bermo_ray.search.searcher import PlanSearcher
from bermo_ray.training.trainer import Resources
from bermo_ray.trial import Data, Pruning, Trial

pytestmark = pytest.mark.slow


class GivesUp(Grid):
    """Gives up the second trial at its first report; remembers what it was told."""

    told: list[tuple[int, Any]]

    def __init__(self, trials: list[Trial]) -> None:
        super().__init__(trials)
        self.told = []

    def hopeless(self, trial: Trial, curve: Any) -> str | None:
        return f"hopeless after {len(curve)}" if trial.seed == 1 else None

    def tell(self, trial: Trial, report: Any) -> None:
        self.told.append((trial.seed, report))


def test_a_stopped_trial_is_a_row_and_the_next_one_runs(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setitem(os.environ, "RAY_ADDRESS", "local")
    base = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=20), backbone=tiny, epochs=3,
        pruning=Pruning(), batch_size=16,
    )  # fmt: skip
    plan = GivesUp([base.replace(seed=seed) for seed in range(3)])
    uri = tracking.store_uri(tmp_path)
    parent = tracking.open_study(uri, "l0_frontier", "s", {}, "{}")
    resources = Resources()
    common = {"resources": vars(resources), "storage": str(tmp_path / "checkpoints")}
    cluster.connect()
    try:
        ended = tuner.run(
            PlanSearcher(plan, common), name="s", storage=str(tmp_path / "checkpoints"),
            resources=resources, concurrent=1, resume=False,
            callbacks=[tracking.Tracker(uri, "s", parent)],
        )  # fmt: skip
    finally:
        ray.shutdown()
    assert ended is plan
    rows = results.load("s", uri).to_pylist()
    assert [r["status"] == "stopped" for r in rows] == [False, True, False]
    assert rows[1]["reason"] == "hopeless after 1"
    assert all(r["status"] in ("completed", "diverged") for r in (rows[0], rows[2]))
    store = tracking.client(uri)
    steps = [len(store.get_metric_history(r["run_id"], "metric")) for r in rows]
    assert steps == [3, 1, 3]
    reports = dict(plan.told)
    assert [reports[seed]["status"] == "stopped" for seed in range(3)] == [False, True, False]
    assert len(reports[0]["curve"]) == 3
    json.dumps(reports)  # it is part of the log that a resumed study is told
