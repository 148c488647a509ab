"""rayjob.yaml against KubeRay's schema and Kubernetes' own, and its documents with each other."""

import copy
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bermo_ray.command_line.parsing import parse
from bermo_ray.ray_backend import cluster
from bermo_ray.ray_backend.cluster import Cluster, count_concurrent
from tests.cluster.rayjob_schema import find_problems
from tests.support.ssh_server import free_port
from tests.support.studies import ROOT, load_script

KUBERNETES = "1.31"  # fields that clusters of this age know are known to later ones


@pytest.fixture
def documents() -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name."""
    parts = yaml.safe_load_all((ROOT / "rayjob.yaml").read_text())
    return {(part["kind"], part["metadata"]["name"]): part for part in parts if part}


@pytest.fixture
def job(documents: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    return documents["RayJob", "bermo-study"]


def groups_of(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The head's group and that of the workers."""
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    return cluster["headGroupSpec"], workers


def validate(document: dict[str, Any]) -> None:
    import kubernetes_validate

    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def as_document(template: dict[str, Any]) -> dict[str, Any]:
    """A pod template as something that Kubernetes has a schema for."""
    name = {"name": "of-a-group"}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": name, "template": template}


def test_kuberay_and_kubernetes_accept_it(
    documents: dict[tuple[str, str], dict[str, Any]], job: dict[str, Any]
) -> None:
    assert sorted(documents) == [
        ("ConfigMap", "bermo-growth"),
        ("Deployment", "mlflow"),
        ("NetworkPolicy", "mlflow"),
        ("PersistentVolumeClaim", "bermo-shared"),
        ("PersistentVolumeClaim", "mlflow"),
        ("RayJob", "bermo-study"),
        ("Service", "mlflow"),
    ]
    assert find_problems(job) == []
    for group in groups_of(job):
        validate(as_document(group["template"]))
    for (kind, _), document in documents.items():
        if kind != "RayJob":
            validate(document)


def remove(record: dict[str, Any], name: str) -> None:
    del record[name]


Spoil = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda s: s.update(entryPoint="x"), "$.spec: Additional properties are not allowed"),
        (lambda s: s.update(submissionMode="Job"), "$.spec.submissionMode: 'Job' is not one of"),
        (lambda s: s.update(suspend="false"), "$.spec.suspend: 'false' is not of type 'boolean'"),
        (lambda s: s["rayClusterSpec"].update(authOptions={"mode": "tokens"}), "'tokens' is not"),
        (lambda s: remove(s["rayClusterSpec"], "headGroupSpec"), "'headGroupSpec' is a required"),
        (lambda s: remove(s["rayClusterSpec"], "rayVersion"), "rayVersion: got None, tokens take"),
        (lambda s: s["rayClusterSpec"].update(rayVersion="2.51.0"), "got 2.51.0, tokens take 2.52"),
        (
            # YAML's number where the command line of `ray start` takes text.
            lambda s: s["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update(
                {"num-cpus": 0}
            ),
            "rayStartParams['num-cpus']: 0 is not of type 'string'",
        ),
        (
            lambda s: s["rayClusterSpec"]["headGroupSpec"].update(resources={"CPU": "0"}),
            "resources: also in rayStartParams: ['num-cpus']",
        ),
        (
            lambda s: remove(s["rayClusterSpec"]["workerGroupSpecs"][0], "template"),
            "workerGroupSpecs[0]: 'template' is a required property",
        ),
        (
            lambda s: remove(s["rayClusterSpec"]["workerGroupSpecs"][0], "groupName"),
            "workerGroupSpecs[0]: 'groupName' is a required property",
        ),
        (
            lambda s: s["rayClusterSpec"]["workerGroupSpecs"][0].update(minReplicas=9),
            "gpu: not minReplicas <= replicas <= maxReplicas",
        ),
        (
            lambda s: s["rayClusterSpec"]["workerGroupSpecs"][0].update(maxReplica=9),
            "workerGroupSpecs[0]: Additional properties are not allowed ('maxReplica'",
        ),
        (
            lambda s: s["rayClusterSpec"]["autoscalerOptions"].update(idleTimeoutSeconds="600"),
            "idleTimeoutSeconds: '600' is not of type 'integer'",
        ),
        (lambda s: remove(s, "shutdownAfterJobFinishes"), "only with shutdownAfterJobFinishes"),
    ],
)
def test_it_would_be_refused_spoilt(job: dict[str, Any], spoil: Spoil, line: str) -> None:
    spoilt = copy.deepcopy(job)
    spoil(spoilt["spec"])
    (problem,) = find_problems(spoilt)
    assert line in problem


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("Deployment", lambda d: remove(d["spec"], "selector")),
        ("Deployment", lambda d: d["spec"]["template"]["spec"]["containers"][0].update(imag="x")),
        ("Service", lambda d: d["spec"]["ports"][0].update(port="5000")),
        ("PersistentVolumeClaim", lambda d: d["spec"].update(accessModes="ReadWriteMany")),
    ],
)
def test_its_other_documents_would_be_refused_spoilt(
    documents: dict[tuple[str, str], dict[str, Any]], kind: str, spoil: Spoil
) -> None:
    import kubernetes_validate

    document = documents[kind, "mlflow"]
    spoil(document)
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(document)


def test_a_pod_template_would_be_refused_spoilt(job: dict[str, Any]) -> None:
    import kubernetes_validate

    _, workers = groups_of(job)
    workers["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        validate(as_document(workers["template"]))


def test_the_head_trains_nothing_and_gpu_workers_scale_from_zero(job: dict[str, Any]) -> None:
    head, workers = groups_of(job)
    assert job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] is True
    assert head["rayStartParams"]["num-cpus"] == "0"
    limits = [
        g["template"]["spec"]["containers"][0]["resources"]["limits"] for g in (head, workers)
    ]
    assert [limit.get("nvidia.com/gpu") for limit in limits] == [None, "1"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (0, 8)


def test_a_study_reads_what_the_worker_group_may_grow_to(
    documents: dict[tuple[str, str], dict[str, Any]],
    job: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((name, text),) = documents["ConfigMap", "bermo-growth"]["data"].items()
    head, workers = groups_of(job)
    mounts = {m["name"]: m for m in head["template"]["spec"]["containers"][0]["volumeMounts"]}
    home = Path("/home/ray")  # of Ray's images
    assert mounts["growth"]["mountPath"] == str(home / cluster.BOOTSTRAP_CONFIG.name)
    assert mounts["growth"]["subPath"] == name
    file = tmp_path / name
    file.write_text(text)
    monkeypatch.setattr(cluster, "BOOTSTRAP_CONFIG", file)
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    most = workers["maxReplicas"]
    gpus, cpus = float(limits["nvidia.com/gpu"]), float(limits["cpu"])
    assert cluster._read_growth() == (most * gpus, cpus, most)


def test_every_pod_has_the_shared_folder_and_nothing_is_open_to_outside(
    documents: dict[tuple[str, str], dict[str, Any]], job: dict[str, Any]
) -> None:
    claim = documents["PersistentVolumeClaim", "bermo-shared"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    head, workers = groups_of(job)
    for group in (head, workers):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["shared"]["persistentVolumeClaim"]["claimName"] == "bermo-shared"
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        assert variables["BERMO_STORAGE"] == "/shared/checkpoints"
    assert "--runs /shared/runs" in job["spec"]["entrypoint"]
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert (head["serviceType"], head["enableIngress"]) == ("ClusterIP", False)
    assert documents["Service", "mlflow"]["spec"]["type"] == "ClusterIP"


def test_studies_find_mlflow_and_no_one_else_may(
    documents: dict[tuple[str, str], dict[str, Any]], job: dict[str, Any]
) -> None:
    service = documents["Service", "mlflow"]
    server = documents["Deployment", "mlflow"]["spec"]["template"]
    (port,) = service["spec"]["ports"]
    uri = f"http://{service['metadata']['name']}:{port['port']}"
    labels = server["metadata"]["labels"]
    policy = documents["NetworkPolicy", "mlflow"]["spec"]
    for selector in (
        service["spec"]["selector"],
        policy["podSelector"]["matchLabels"],
        documents["Deployment", "mlflow"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    ((source,),) = [rule["from"] for rule in policy["ingress"]]
    for group in groups_of(job):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "MLFLOW_TRACKING_URI", "value": uri} in container["env"]
        assert source["podSelector"]["matchLabels"] == group["template"]["metadata"]["labels"]
    (container,) = server["spec"]["containers"]
    assert port["targetPort"] == container["ports"][0]["containerPort"]


def test_the_versions_are_the_pinned_ones(job: dict[str, Any]) -> None:
    version = job["spec"]["rayClusterSpec"]["rayVersion"]
    assert f"\nray=={version}\n" in (ROOT / "constraints.txt").read_text()
    assert f"FROM rayproject/ray:{version}-py311-gpu" in (ROOT / "docs" / "cluster.md").read_text()


def test_what_the_entrypoint_asks_for_fits(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["python", "/home/ray/bermo_ray/studies/l0_frontier.py"]
    monkeypatch.setattr(sys, "argv", words[1:])
    options = parse(load_script("l0_frontier").Options)
    assert (options.task, options.gpus) == ("qqp", True)
    grown = Cluster(
        cpus=0, gpus=0, most_gpus=8, gpu_node_cpus=4, nodes=9, started_here=False
    )  # fmt: skip
    assert count_concurrent(grown, options.resources, None) == 2, "of 4 GPUs each"


def test_what_is_to_be_put_in_is_explained_at_the_top() -> None:
    top, rest = (ROOT / "rayjob.yaml").read_text().split("---", 1)
    left_open = set(re.findall(r"YOUR-[A-Z]+", rest))
    assert left_open == {"YOUR-IMAGE", "YOUR-CLASS"}
    assert left_open == set(re.findall(r"^#   (YOUR-[A-Z]+) ", top, re.MULTILINE))


def ask(port: int, host: str) -> int:
    """The status with which MLflow answers who asks for it by that name."""
    address = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search?max_results=1"
    request = urllib.request.Request(address, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_mlflow_answers_by_the_name_of_its_service_alone(
    documents: dict[tuple[str, str], dict[str, Any]], tmp_path: Path
) -> None:
    (container,) = documents["Deployment", "mlflow"]["spec"]["template"]["spec"]["containers"]
    port = free_port()
    here = {"--host=0.0.0.0": "--host=127.0.0.1", "--port=5000": f"--port={port}"}
    args = [here.get(a, a).replace("/mlflow/", f"{tmp_path}/") for a in container["args"]]
    environment = os.environ | {entry["name"]: entry["value"] for entry in container["env"]}
    assert container["command"] == ["mlflow", "server"]
    command = [sys.executable, "-m", "mlflow", "server", *args]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        path = container["readinessProbe"]["httpGet"]["path"]
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.2)
        hosts = ("mlflow:5000", "127.0.0.1:5000", "localhost:5000", "elsewhere.example:5000")
        assert [ask(port, host) for host in hosts] == [200, 200, 200, 403]
        assert (tmp_path / "mlflow.db").is_file()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
