"""Trained models as MLflow 3 has them: logged models with their metrics and data, and versions of
registered models.

A logged model says where the checkpoint lies; no weights are copied. A registered one has files of
its own, for it is to outlive the checkpoints.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.tracking import store
from bermo_ray.trial import Trial

_LONGEST_PARAM = 250  # characters of a logged model's parameter
_MODEL_METRICS = {
    "metric", "metric_selection", "metric_verification", "metric_test", "remaining", "density",
    "latency", "weight_bytes", "nonzero_parameters",
}  # fmt: skip
_FORBIDDEN = ("/", ":")  # in the name of a registered model


def describe_data(trial: Trial) -> Any:
    """The rows that a trial is trained on, as MLflow's dataset. Its digest is of what they are
    taken from and how many, and of a user's own rows of their content; of others the driver need
    not have it."""
    from mlflow.entities import Dataset

    data = trial.data
    settings = data.model_dump(mode="json")
    rows = {key: settings[key] for key in ("train_rows", "dev_rows", "shots") if settings[key]}
    source_uri = data.data_dir or data.task
    if data.user is not None:  # of a user's own rows the content is known
        settings, source_uri = (
            {**rows, "content": data.user.digest},
            data.user.dataset or data.user.train,
        )
    text = json.dumps(settings, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    source = json.dumps({"uri": source_uri})
    return Dataset(trial.data.task, digest, "local", source, profile=json.dumps(rows))


def log_data(client: Any, run_id: str, trial: Trial) -> None:
    """Records on a trial's run what it is trained on."""
    from mlflow.entities import DatasetInput, InputTag

    context = [InputTag("mlflow.data.context", "training")]
    client.log_inputs(run_id, datasets=[DatasetInput(describe_data(trial), context)])


def create_model(
    client: Any, run: tuple[str, str], trial: Trial, params: Mapping[str, object], checkpoint: str
) -> str:
    """Records that a trial has a model; gives its id.

    Args:
        client: Of the store.
        run: The experiment's id and that of the trial's run.
        trial: The trial.
        params: What tells it from the others of its study.
        checkpoint: Where its weights lie; empty while that is not known.
    """
    method = trial.pruning.method if trial.pruning else "dense"
    model = client.create_logged_model(
        run[0],
        name=f"{trial.fusion.name}-{method}-{trial.id[:6]}",
        source_run_id=run[1],
        tags={"bermo.trial_id": trial.id, "bermo.checkpoint": checkpoint},
        params={name: str(value)[:_LONGEST_PARAM] for name, value in params.items()},
        model_type=trial.data.task,
    )
    return str(model.model_id)


def find_model(client: Any, run: tuple[str, str]) -> str | None:
    """The id of the model that a trial's run has already, if any: a driver may be killed before the
    run names it.

    Args:
        client: Of the store.
        run: The experiment's id and that of the trial's run.
    """
    query = f"source_run_id = '{run[1]}'"
    found = client.search_logged_models([run[0]], filter_string=query, max_results=1)
    return str(found[0].model_id) if found else None


def link_metrics(metrics: Iterable[Any], model_id: str, run_id: str, trial: Trial) -> list[Any]:
    """Metrics of a run; those that describe its model belong to that and to its data too."""
    from mlflow.entities import Metric

    data = describe_data(trial)
    return [
        Metric(m.key, m.value, m.timestamp, m.step, model_id, data.name, data.digest, run_id)
        if m.key in _MODEL_METRICS
        else m
        for m in metrics
    ]


def finish_model(client: Any, model_id: str, run_id: str, step: int) -> None:
    """Marks a model as ready, and as what came out of its run, which can be said only once."""
    from mlflow.entities import LoggedModelOutput

    outputs = client.get_run(run_id).outputs
    known = {output.model_id for output in outputs.model_outputs} if outputs else set()
    if model_id not in known:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step)])
    client.finalize_logged_model(model_id, "READY")


def check_model_name(name: str) -> None:
    """Whether a registered model can be called so.

    Raises:
        UserError: it is empty, or has characters that MLflow does not take.
    """
    if not name.strip() or any(sign in name for sign in _FORBIDDEN):
        raise UserError(f"register: got {name!r}, expected a name without / and :")


def register_model(uri: str, run_id: str, name: str, folder: Path, description: str) -> str:
    """Makes a new version of a registered model of a trial's logged model; gives its number.

    Args:
        uri: MLflow's store.
        run_id: The trial's run.
        name: Of the registered model; a new one is made where there is none.
        folder: Files that are copied to the model.
        description: Of the version.

    Raises:
        UserError: the trial has no logged model, or MLflow refuses the name.
    """
    from mlflow.exceptions import MlflowException

    check_model_name(name)
    client = store.connect(uri)
    run = client.get_run(run_id)
    outputs = run.outputs.model_outputs if run.outputs else []
    if not outputs:
        raise UserError(f"register: trial {run_id[:8]} has no logged model: it did not complete")
    model_id = outputs[-1].model_id
    client.log_model_artifacts(model_id, str(folder))
    # A server knows its models by their ids; without one, MLflow would look for them in whatever
    # store its environment names.
    source = f"models:/{model_id}"
    if uri.startswith(store.SQLITE):
        source = client.get_logged_model(model_id).artifact_location
    try:
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        version = client.create_model_version(
            name, source, run_id, description=description, model_id=model_id,
            tags={"bermo.study": run.data.tags["bermo.study"], "bermo.model_id": model_id},
        )  # fmt: skip
    except MlflowException as error:
        raise UserError(f"register: {str(error).splitlines()[0]}") from error
    return str(version.version)
