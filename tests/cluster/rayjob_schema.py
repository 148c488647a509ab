"""What KubeRay takes for a RayJob, above its pod templates.

The fields, types and choices of ``ray.io/v1`` as KubeRay 1.6.2 publishes them (its API reference
and Go types), with unknown fields refused, as a strict `kubectl apply` does. Pod templates and
Services are Kubernetes' own and are checked by kubernetes-validate.
"""

from typing import Any

from jsonschema import Draft202012Validator
from packaging.version import Version

_TEXT: dict[str, Any] = {"type": "string"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_NUMBER: dict[str, Any] = {"type": "number"}
_INTEGER: dict[str, Any] = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_TEXT_BY_NAME: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_KUBERNETES: dict[str, Any] = {"type": "object"}  # Kubernetes' own, checked elsewhere
_MANAGERS = ["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]
_DELETIONS = ["DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"]
_FIRST_RAY_WITH_TOKENS = Version("2.52.0")


def _choice(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _record(*required: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


_REDIS = _record(value=_TEXT, valueFrom=_KUBERNETES)
_DELETION_POLICY = _record(policy=_choice(*_DELETIONS))
_DELETION_RULE = _record(
    "policy", "condition",
    policy=_choice(*_DELETIONS),
    condition=_record(
        jobStatus=_choice("SUCCEEDED", "FAILED"),
        jobDeploymentStatus=_choice("Failed"),
        ttlSeconds=_INTEGER | {"minimum": 0},
    ),
)  # fmt: skip
_AUTOSCALER = _record(
    resources=_KUBERNETES, image=_TEXT, imagePullPolicy=_TEXT, securityContext=_KUBERNETES,
    idleTimeoutSeconds=_INTEGER, upscalingMode=_choice("Default", "Aggressive", "Conservative"),
    version=_choice("v1", "v2"), env=_list(_KUBERNETES), envFrom=_list(_KUBERNETES),
    volumeMounts=_list(_KUBERNETES),
)  # fmt: skip
_HEAD = _record(
    "template",
    template=_KUBERNETES, headService=_KUBERNETES, enableIngress=_FLAG, resources=_TEXT_BY_NAME,
    labels=_TEXT_BY_NAME, rayStartParams=_TEXT_BY_NAME, serviceType=_TEXT,
)  # fmt: skip
_WORKERS = _record(
    "groupName", "minReplicas", "maxReplicas", "template",
    suspend=_FLAG, groupName=_TEXT, replicas=_INTEGER, minReplicas=_INTEGER, maxReplicas=_INTEGER,
    idleTimeoutSeconds=_INTEGER, resources=_TEXT_BY_NAME, labels=_TEXT_BY_NAME,
    rayStartParams=_TEXT_BY_NAME, template=_KUBERNETES,
    scaleStrategy=_record(workersToDelete=_TEXTS), numOfHosts=_INTEGER,
)  # fmt: skip
_CLUSTER = _record(
    "headGroupSpec",
    upgradeStrategy=_record(type=_choice("Recreate", "None")),
    authOptions=_record(
        enableK8sTokenAuth=_FLAG, secretName=_TEXT, mode=_choice("disabled", "token")
    ),
    suspend=_FLAG, managedBy=_choice(*_MANAGERS), autoscalerOptions=_AUTOSCALER,
    headServiceAnnotations=_TEXT_BY_NAME, enableInTreeAutoscaling=_FLAG,
    gcsFaultToleranceOptions=_record(
        "redisAddress",
        redisUsername=_REDIS, redisPassword=_REDIS, externalStorageNamespace=_TEXT,
        redisAddress=_TEXT,
    ),
    headGroupSpec=_HEAD, rayVersion=_TEXT, workerGroupSpecs=_list(_WORKERS),
)  # fmt: skip
_JOB = _record(
    activeDeadlineSeconds=_INTEGER, backoffLimit=_INTEGER, rayClusterSpec=_CLUSTER,
    submitterPodTemplate=_KUBERNETES, metadata=_TEXT_BY_NAME, clusterSelector=_TEXT_BY_NAME,
    submitterConfig=_record(backoffLimit=_INTEGER), managedBy=_choice(*_MANAGERS),
    deletionStrategy=_record(
        onSuccess=_DELETION_POLICY, onFailure=_DELETION_POLICY,
        deletionRules=_list(_DELETION_RULE) | {"minItems": 1},
    ),
    entrypoint=_TEXT, runtimeEnvYAML=_TEXT, jobId=_TEXT,
    submissionMode=_choice("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"),
    entrypointResources=_TEXT, entrypointNumCpus=_NUMBER, entrypointNumGpus=_NUMBER,
    ttlSecondsAfterFinished=_INTEGER, preRunningDeadlineSeconds=_INTEGER | {"minimum": 1},
    shutdownAfterJobFinishes=_FLAG, suspend=_FLAG,
)  # fmt: skip
SCHEMA = _record(
    "apiVersion", "kind", "metadata", "spec",
    apiVersion=_choice("ray.io/v1"), kind=_choice("RayJob"), metadata=_KUBERNETES, spec=_JOB,
)  # fmt: skip


def find_problems(job: dict[str, Any]) -> list[str]:
    """What the schema refuses, each with its place; if nothing, what fields say against each
    other: the operator refuses the first three, the last would never scale."""
    errors = Draft202012Validator(SCHEMA).iter_errors(job)
    problems = [f"{error.json_path}: {error.message}" for error in errors]
    return problems or _find_contradictions(job["spec"])


def _find_contradictions(spec: dict[str, Any]) -> list[str]:
    cluster = spec["rayClusterSpec"]
    workers = cluster.get("workerGroupSpecs", [])
    problems = []
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        problems.append("ttlSecondsAfterFinished: only with shutdownAfterJobFinishes")
    if cluster.get("authOptions", {}).get("mode") == "token":
        version = cluster.get("rayVersion")
        if version is None or Version(version) < _FIRST_RAY_WITH_TOKENS:
            problems.append(f"rayVersion: got {version}, tokens take {_FIRST_RAY_WITH_TOKENS}")
    for group in (cluster["headGroupSpec"], *workers):
        by_parameters = {"num-cpus", "num-gpus", "memory", "resources"} & set(
            group.get("rayStartParams", {})
        )
        if by_parameters and group.get("resources"):
            problems.append(f"resources: also in rayStartParams: {sorted(by_parameters)}")
    for group in workers:
        least, most = group["minReplicas"], group["maxReplicas"]
        if not least <= group.get("replicas", least) <= most:
            problems.append(f"{group['groupName']}: not minReplicas <= replicas <= maxReplicas")
    return problems
