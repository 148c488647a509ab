"""A trial that its plan gives up, for real: through Tune, into MLflow."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bermo_ray import results
from bermo_ray.record import Report, Status
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study
from bermo_ray.tracking.store import Store, connect
from bermo_ray.trial import L0, Data, Trial

pytestmark = pytest.mark.ray


class GivesUp(Grid):
    """Gives up the second trial at its first report; remembers what it was told."""

    def __init__(self, trials: list[Trial]) -> None:
        super().__init__(trials)
        self.told: list[tuple[int, Sequence[Report]]] = []

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        return f"hopeless after {len(reports)}" if trial.seed == 1 else None

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        self.told.append((trial.seed, reports))


@pytest.mark.parametrize("backend", ["ray", "process"])
def test_a_stopped_trial_is_a_row_and_the_next_one_runs(
    backend: str, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    base = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=20), backbone=tiny, epochs=3,
        pruning=L0(), batch_size=16,
    )  # fmt: skip
    plan = GivesUp([base.replace(seed=seed) for seed in range(3)])
    study = Study("s", plan, store=Store(tmp_path), backend=backend, concurrent=1)  # type: ignore[arg-type]
    rows = study.run().table.to_pylist()
    assert study.plan is plan
    assert rows == results.load("s", study.uri).to_pylist()
    assert [r["status"] == "stopped" for r in rows] == [False, True, False]
    assert rows[1]["reason"] == "hopeless after 1"
    assert all(Status(r["status"]).measured for r in (rows[0], rows[2]))
    client = connect(study.uri)
    steps = [len(client.get_metric_history(r["run_id"], "metric")) for r in rows]
    assert steps == [3, 1, 3]
    reports = dict(plan.told)
    assert [reports[s][-1].status == "stopped" for s in range(3)] == [False, True, False]
    assert [len(reports[s]) for s in range(3)] == [3, 2, 3]
