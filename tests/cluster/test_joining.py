"""A study joins a Ray cluster that is already running, here one of two nodes on this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from bermo_ray import results
from bermo_ray.tracking.store import store_uri
from tests.support.studies import ENVIRONMENT, L0_FRONTIER, small_study

pytestmark = pytest.mark.ray


def test_a_study_joins_and_asks_for_storage_that_all_nodes_see(tiny: str, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        environment = ENVIRONMENT | {"RAY_ADDRESS": cluster.address}
        options = ["--runs", str(tmp_path / "runs"), *small_study(tiny), "--trials", "1"]

        def study(*more: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, str(L0_FRONTIER), *options, *more],
                env=environment, capture_output=True, text=True, timeout=400, check=False,
            )  # fmt: skip

        refused = study()
        assert refused.returncode == 2, refused.stderr
        assert refused.stderr.startswith("error: --storage: trials may move between")
        assert len(refused.stderr.strip().splitlines()) == 1
        done = study("--storage", str(tmp_path / "shared"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "on the running Ray cluster (2 CPUs" in done.stdout
    finally:
        cluster.shutdown()
    table = results.load("s", store_uri(tmp_path / "runs"))
    assert table.num_rows == 4
    assert all(str(tmp_path / "shared") in path for path in table["checkpoint"].to_pylist())
    assert [p.name for p in (tmp_path / "shared").iterdir()] == ["s"]
