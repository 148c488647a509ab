"""A study on several nodes, here Ray processes on one machine: it spreads, and outlives a node."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bermo_ray import results
from bermo_ray.record import Status
from bermo_ray.tracking.store import store_uri
from tests.support.studies import ENVIRONMENT, L0_FRONTIER, same_as_alone, small_study

pytestmark = pytest.mark.ray


class Nodes:
    """A cluster whose head trains nothing, and what runs on its nodes."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.nodes = [self.add(), self.add()]

    def add(self) -> Any:
        return self.cluster.add_node(num_cpus=1)

    def start(self, runs: Path, *options: str) -> "subprocess.Popen[str]":
        """A study on it."""
        call = [sys.executable, str(L0_FRONTIER), "--runs", str(runs)]
        call += ["--storage", str(runs.parent / "shared"), *options]
        environment = ENVIRONMENT | {"RAY_ADDRESS": self.cluster.address}
        pipe = subprocess.PIPE
        return subprocess.Popen(call, env=environment, stdout=pipe, stderr=pipe, text=True)

    def busy(self, actor: str) -> dict[str, str]:
        """The node of each living actor of that class, by the actor's id."""
        table = self.cluster.global_state.actor_table(None).values()
        alive = [a for a in table if a["State"] == "ALIVE" and a["ActorClassName"] == actor]
        return {a["ActorID"]: a["Address"]["NodeID"] for a in alive}


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv("BERMO_CACHE", str(tmp_path / "shared" / "cache"))  # of all nodes
    nodes = Nodes()
    yield nodes
    nodes.cluster.shutdown()


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.3)


def read_rows(runs: Path) -> list[dict[str, Any]]:
    if not (runs / "s" / "study.json").is_file():
        return []
    return results.load("s", store_uri(runs)).to_pylist()


def test_trials_spread_and_outlive_a_node_which_is_used_when_it_is_back(
    nodes: Nodes, deeper: str, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    process = nodes.start(runs, *small_study(deeper, rows=2000, epochs=6))
    trials = "ImplicitFunc"
    wait_until(lambda: len(set(nodes.busy(trials).values())) == 2, process)  # one on each

    def all_have_checkpoints() -> bool:
        rows = [row for row in read_rows(runs) if row["status"] == "running"]
        return len(rows) == 2 and all(row["checkpoint"] for row in rows)

    wait_until(all_have_checkpoints, process)
    steps = {row["trial_id"]: row["step"] for row in read_rows(runs)}
    nodes.cluster.remove_node(nodes.nodes.pop(), allow_graceful=False)
    wait_until(lambda: len(set(nodes.busy(trials).values())) == 1, process)
    before = set(nodes.busy(trials).values())
    nodes.nodes.append(nodes.add())
    wait_until(lambda: bool(set(nodes.busy(trials).values()) - before), process)
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, out + err
    rows = read_rows(runs)
    assert len(rows) == 6
    assert all(Status(row["status"]).measured for row in rows)
    resumed = [row for row in rows if row["resumed_at"]]
    assert len(resumed) == 1, "the trial of the lost node goes on, the other one does not notice"
    # From its last evaluation, one of which there is every 63 steps: no more is done again.
    assert resumed[0]["resumed_at"] >= steps[resumed[0]["trial_id"]] > 0
    assert resumed[0]["resumed_at"] % 63 == 0
    same_as_alone(resumed[0])
    encoded = tmp_path / "shared" / "cache" / "encoded"
    assert len(list(encoded.glob("*.arrow"))) == 3, "train, dev and test, once for all nodes"
    assert not list(encoded.glob("*.partial"))


def test_the_workers_of_a_trial_span_nodes(nodes: Nodes, tiny: str, tmp_path: Path) -> None:
    options = (*small_study(tiny, rows=600, epochs=2), "--workers", "2", "--fusions", "last")
    process = nodes.start(tmp_path / "runs", *options, "--trials", "1")
    wait_until(lambda: len(set(nodes.busy("RayTrainWorker").values())) == 2, process)
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, out + err
    rows = read_rows(tmp_path / "runs")
    assert [row["workers"] for row in rows] == [2, 2]
    assert all(Status(row["status"]).measured for row in rows)
