"""cluster.yaml and cluster.local.yaml against Ray's own schema and against what docs/cluster.md
promises of them; cluster.yaml up to its nodes' creation, on moto's mock of AWS."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BOTH_FILES = pytest.mark.parametrize("file", ["cluster.yaml", "cluster.local.yaml"])


def read(file: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / file).read_text())


@pytest.fixture
def config() -> dict[str, Any]:
    return read("cluster.yaml")


def validated(config: dict[str, Any]) -> dict[str, Any]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


@BOTH_FILES
def test_ray_accepts_it(file: str) -> None:
    prepared = validated(read(file))
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


@BOTH_FILES
def test_dashboards_listen_on_loopback_and_nodes_ask_for_the_token(file: str) -> None:
    config = read(file)
    head = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in head
    assert re.search(r"mlflow server\s+--host 127\.0\.0\.1", head)
    assert "0.0.0.0" not in (ROOT / file).read_text()
    starts = [
        c
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for c in config[key]
        if "ray start" in c
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in c for c in starts)


@BOTH_FILES
def test_every_node_has_the_token_and_the_pinned_install(file: str) -> None:
    config = read(file)
    assert config["file_mounts"] == {
        "~/bermo_ray": ".",
        "~/.ray/auth_token": "~/.ray/auth_token",
    }
    setup = " ".join(config["setup_commands"])
    assert "--constraint constraints.txt" in setup
    pins = (ROOT / "constraints.txt").read_text()
    assert "torch==2.13.0\n" in pins
    assert re.search(r"^ray==2\.60\.0$", pins, re.MULTILINE)


def test_a_study_finds_the_same_on_the_cloud_and_on_own_machines() -> None:
    cloud, own = read("cluster.yaml"), read("cluster.local.yaml")
    for key in ("head_start_ray_commands", "worker_start_ray_commands", "file_mounts"):
        assert cloud[key] == own[key]
    variables = [
        re.findall(r"([A-Z_]+)=", next(c for c in config["setup_commands"] if "export" in c))
        for config in (cloud, own)
    ]
    expected = ["PATH", "RAY_AUTH_MODE", "BERMO_STORAGE", "MLFLOW_TRACKING_URI"]
    assert variables == [expected, expected]


def test_what_is_to_be_put_in_is_explained_at_the_top() -> None:
    top, rest = (ROOT / "cluster.yaml").read_text().split("cluster_name:")
    left_open = set(re.findall(r"YOUR-[A-Z]+", rest))
    assert left_open == {"YOUR-BUCKET", "YOUR-PROFILE", "YOUR-IMAGE"}
    assert left_open == set(re.findall(r"^#   (YOUR-[A-Z]+) ", top, re.MULTILINE))


def test_the_cluster_can_grow_to_the_gpus_that_the_check_counts(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bermo_ray.ray_backend import cluster

    file = tmp_path / "bootstrap.yaml"
    file.write_text(yaml.safe_dump(validated(config)))
    monkeypatch.setattr(cluster, "BOOTSTRAP_CONFIG", file)
    assert cluster._read_growth() == (8.0, 4.0, 8)


def fill_in(config: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(config)
    for name, value in values.items():
        text = text.replace(name, value)
    return json.loads(text)


@pytest.mark.slow
def test_aws_would_start_the_nodes(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3
    from moto import mock_aws
    from ray.autoscaler import tags
    from ray.autoscaler._private import commands

    monkeypatch.setenv("HOME", str(tmp_path))  # Ray leaves the key of the nodes there
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "no key")
    with mock_aws():
        ec2 = boto3.client("ec2", config["provider"]["region"])
        boto3.client("iam").create_instance_profile(InstanceProfileName="nodes")
        image = ec2.describe_images()["Images"][0]["ImageId"]
        values = {"YOUR-PROFILE": "nodes", "YOUR-IMAGE": image, "YOUR-BUCKET": "bucket"}
        ready = commands._bootstrap_config(fill_in(config, values), no_config_cache=True)
        provider = commands._get_node_provider(ready["provider"], ready["cluster_name"])
        for kind, node_type in (
            (tags.NODE_KIND_HEAD, "head"),
            (tags.NODE_KIND_WORKER, "gpu_spot"),
            (tags.NODE_KIND_WORKER, "gpu"),
        ):
            node_config = ready["available_node_types"][node_type]["node_config"]
            labels = {tags.TAG_RAY_NODE_KIND: kind, tags.TAG_RAY_USER_NODE_TYPE: node_type}
            provider.create_node(node_config, labels, 1)
        nodes = [n for r in ec2.describe_instances()["Reservations"] for n in r["Instances"]]
        disks = ec2.describe_volumes()["Volumes"]
        groups = ec2.describe_security_groups(GroupIds=[nodes[0]["SecurityGroups"][0]["GroupId"]])

    by_type = {
        labels["ray-user-node-type"]: (node, labels)
        for node in nodes
        for labels in [{tag["Key"]: tag["Value"] for tag in node["Tags"]}]
    }
    assert {name: node["InstanceType"] for name, (node, _) in by_type.items()} == {
        "head": "m6i.xlarge",
        "gpu_spot": "g5.xlarge",
        "gpu": "g5.xlarge",
    }
    assert {name: labels["ray-node-type"] for name, (_, labels) in by_type.items()} == {
        "head": "head",
        "gpu_spot": "worker",
        "gpu": "worker",
    }
    assert [n for n, (node, _) in by_type.items() if node.get("InstanceLifecycle") == "spot"] == [
        "gpu_spot"
    ]
    assert all(labels["ray-cluster-name"] == "bermo-ray" for _, labels in by_type.values())
    assert {node["ImageId"] for node in nodes} == {image}
    profiles = [node["IamInstanceProfile"]["Arn"].rpartition("/")[2] for node in nodes]
    assert profiles == ["nodes"] * 3, "whoever has none can't write a checkpoint"
    assert [disk["Size"] for disk in disks] == [150] * 3
    attached = [disk["Ebs"] for node in nodes for disk in node["BlockDeviceMappings"]]
    assert [disk["DeleteOnTermination"] for disk in attached] == [True] * 3
    # What the rest of the world may reach: SSH, and nothing of Ray's or MLflow's.
    (group,) = groups["SecurityGroups"]
    to_all = [rule for rule in group["IpPermissions"] if rule["IpRanges"]]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in to_all] == [(22, 22)]
    # AWS's own table of machines agrees with what the file says that they have.
    types = ready["available_node_types"]
    assert {name: types[name]["resources"]["CPU"] for name in types} == {
        "head": 0,
        "gpu_spot": 4,
        "gpu": 4,
    }
    assert types["gpu_spot"]["resources"]["accelerator_type:A10G"] == 1
