"""cluster.yaml against Ray's own schema, and against what the README promises of it."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def validated(config: dict[str, Any]) -> dict[str, Any]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


def test_ray_accepts_it(config: dict[str, Any]) -> None:
    prepared = validated(config)
    assert prepared["head_node_type"] in prepared["available_node_types"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c.update(hed_node_type="head"),
        lambda c: c.update(head_node_type="nowhere"),
        lambda c: c["available_node_types"]["gpu_spot"].update(min_workers=9),
    ],
)
def test_ray_would_refuse_it_spoilt(config: dict[str, Any], spoil: Any) -> None:
    spoil(config)
    with pytest.raises(Exception, match=r".+"):
        validated(config)


def test_gpu_workers_scale_from_zero_and_may_be_spot(config: dict[str, Any]) -> None:
    types = config["available_node_types"]
    workers = {name: t for name, t in types.items() if name != config["head_node_type"]}
    assert all(t["min_workers"] == 0 and t["resources"]["GPU"] >= 1 for t in workers.values())
    markets = [t["node_config"].get("InstanceMarketOptions") for t in workers.values()]
    assert {"MarketType": "spot"} in markets
    assert "GPU" not in types[config["head_node_type"]]["resources"]


def test_dashboards_listen_on_loopback_and_nodes_ask_for_the_token(config: dict[str, Any]) -> None:
    head = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in head
    assert re.search(r"mlflow server\s+--host 127\.0\.0\.1", head)
    assert "0.0.0.0" not in (ROOT / "cluster.yaml").read_text()
    starts = [
        c
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for c in config[key]
        if "ray start" in c
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in c for c in starts)


def test_every_node_has_the_pinned_install(config: dict[str, Any]) -> None:
    setup = " ".join(config["setup_commands"])
    assert "--constraint constraints.txt" in setup
    pins = (ROOT / "constraints.txt").read_text()
    assert "torch==2.13.0\n" in pins
    assert re.search(r"^ray==2\.60\.0$", pins, re.MULTILINE)


def test_the_cluster_can_grow_to_the_gpus_that_the_check_counts(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bermo_ray.ray_backend import cluster

    file = tmp_path / "bootstrap.yaml"
    file.write_text(yaml.safe_dump(validated(config)))
    monkeypatch.setattr(cluster, "BOOTSTRAP_CONFIG", file)
    assert cluster._read_growth() == (8.0, 4.0, 8)
