"""The MLflow run of a study itself: opened, reopened, and what it says of the machine."""

import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bermo_ray.record import Status
from bermo_ray.tracking import store
from bermo_ray.tracking.store import SQLITE

MAX_PARAM_LENGTH = 500  # characters; the complete Trial is an artifact


def open_study(uri: str, kind: str, name: str, params: Mapping[str, Any], plan_json: str) -> str:
    """Makes the parent run of a new study; gives its id."""
    from mlflow.entities import Param

    client = store.connect(uri)
    experiment_id = _find_or_make_experiment(client, uri, kind)
    tags = {"bermo.kind": "study", "bermo.study": name, "bermo.status": str(Status.RUNNING)}
    run = client.create_run(experiment_id, run_name=name, tags=tags | environment_tags())
    # What was not asked for is no parameter.
    asked = {k: v for k, v in params.items() if v not in (None, False, "", [], (), {})}
    given = [Param(key, str(value)[:MAX_PARAM_LENGTH]) for key, value in asked.items()]
    client.log_batch(run.info.run_id, params=given)
    client.log_text(run.info.run_id, plan_json, "plan.json")
    return str(run.info.run_id)


def _find_or_make_experiment(client: Any, uri: str, kind: str) -> str:
    """The id of the experiment that studies of a kind belong to."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(kind)
    if experiment is None:
        artifacts = None
        if uri.startswith(SQLITE):  # else artifacts would go below the working directory
            artifacts = (Path(uri.removeprefix(SQLITE)).parent / store.ARTIFACTS / kind).as_uri()
        # Without this tag MLflow shows it with the tools for language-model traces.
        tags = {"mlflow.experimentKind": "custom_model_development"}
        try:
            return str(client.create_experiment(kind, artifact_location=artifacts, tags=tags))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(kind)  # another study made it meanwhile
    return str(experiment.experiment_id)


def reopen_study(uri: str, study_run: str) -> None:
    """Marks a study as running again."""
    client = store.connect(uri)
    client.set_tag(study_run, "bermo.status", str(Status.RUNNING))
    client.update_run(study_run, "RUNNING")


# What MLflow's UI shows, where a tick means a result. Our own code reads the tag `bermo.status`.
MLFLOW_STATUS = {
    Status.RUNNING: "RUNNING",
    Status.COMPLETED: "FINISHED",
    Status.DIVERGED: "FAILED",
    Status.FAILED: "FAILED",
    Status.STOPPED: "KILLED",
    Status.INTERRUPTED: "KILLED",
}


def add_files(uri: str, run_id: str, files: Sequence[Path], folder: str | None = None) -> None:
    """Keeps files as artifacts of a run, in a folder among them if one is given."""
    client = store.connect(uri)
    for file in files:
        client.log_artifact(run_id, str(file), folder)


@cache
def environment_tags() -> dict[str, str]:
    """What a reader needs to run it again: versions, commit, machine."""
    packages = ("torch", "transformers", "ray", "optuna", "mlflow", "datasets", "pyarrow", "numpy")
    tags = {f"version.{name}": version(name) for name in packages}
    tags |= {
        "version.python": platform.python_version(),
        "version.bermo_ray": version("bermo-ray"),
    }
    head, changes = _ask_git("rev-parse", "HEAD"), _ask_git("status", "--porcelain")
    if head:
        tags["commit"] = head + (" with changes" if changes else "")
    return tags


def _ask_git(*words: str) -> str:
    """What git says of this checkout; nothing where there is no git, or no checkout."""
    if shutil.which("git") is None:
        return ""
    call = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(call, capture_output=True, text=True, check=False).stdout.strip()
