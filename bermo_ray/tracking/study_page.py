"""A study's pages in MLflow's UI: addresses, the view of its trials, descriptions.

MLflow opens on its tools for language-model traces unless an address says otherwise, and with none
of a run's metrics in the table of runs. So each study has a view, kept as a tag of its experiment,
that an address names: its trials, with the columns that matter. The tags' format is that of the
UI's "saved views".
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from bermo_ray.search.trial_names import pick_varied_fields
from bermo_ray.tracking import store

NOTE = "mlflow.note.content"  # MLflow's tag of a description, in Markdown
HEADLINE = "bermo.headline"  # a study's result in a sentence, for the experiment's description
LONGEST_NOTE = 8000  # characters of a tag of a run
_VIEW = "mlflow.sharedViewState."
_MODEL_TRAINING = {"workflowType": "machine_learning"}
# The table's first columns, which are always there, in pixels.
_WIDTHS = {"attributes.`Run Name`": 290, "runDateAndNestInfo": 140}
# How the names of fields begin that come first among the parameters.
_FIRST_FIELDS = (
    "data.", "backbone", "fusion.name", "fusion.", "layer_drop.", "pruning.method",
    "pruning.multiplier", "pruning.", "optimizer.",
)  # fmt: skip
_LISTED_STUDIES = 30  # of an experiment's description
IMAGES = "description"  # the folder of a run's artifacts that its description shows images of


def link_to_run(experiment_id: str, run_id: str) -> str:
    """The page of a run, relative to the server's address."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?{urlencode(_MODEL_TRAINING)}"


def link_to_file(run_id: str, path: str) -> str:
    """An artifact of a run, relative to the server's address."""
    return f"get-artifact?{urlencode({'path': path, 'run_uuid': run_id})}"


def link_to_study(experiment_id: str, study: str) -> str:
    """The table of a study's trials, relative to the server's address."""
    query = urlencode({**_MODEL_TRAINING, "viewStateShareKey": study}, quote_via=quote)
    return f"#/experiments/{experiment_id}/runs?{query}"


def save_view(
    uri: str, study_run: str, study: str, varied: Collection[str], is_smaller: bool
) -> None:
    """Keeps the view that :func:`link_to_study` opens: the runs of the study, best metric first.

    Args:
        uri: MLflow's store.
        study_run: Id of the study's own run.
        study: Its name.
        varied: The fields in which its trials differ.
        is_smaller: Whether its trials make encoders smaller, so that their size is shown.
    """
    client = store.connect(uri)
    metrics = ["metric", *(["remaining"] if is_smaller else [])]
    params = sorted(pick_varied_fields(varied), key=_rank_field)
    columns = ["tags.`bermo.status`", *(f"metrics.`{name}`" for name in metrics)]
    columns += [f"params.`{name}`" for name in params]
    state = {
        "searchFilter": f"tags.`bermo.study` = '{study}'",
        "orderByKey": "metrics.`metric`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": [*_WIDTHS, *columns, "duration"],
        "columnWidths": _WIDTHS,
    }
    now = int(time.time() * 1000)
    view = {"name": study, "createdAt": now, "updatedAt": now, "state": json.dumps(state)}
    experiment_id = client.get_run(study_run).info.experiment_id
    client.set_experiment_tag(experiment_id, f"{_VIEW}{study}", json.dumps(view))


def _rank_field(name: str) -> tuple[int, str]:
    """Where among the columns a field belongs: what is compared first, the seed last."""
    last = len(_FIRST_FIELDS)
    rank = next((i for i, start in enumerate(_FIRST_FIELDS) if name.startswith(start)), last)
    return (last + 1 if name == "seed" else rank), name


def describe_study(
    uri: str, study_run: str, note: str, headline: str, metrics: Mapping[str, float]
) -> None:
    """Writes the description and the metrics of a study's own run.

    Args:
        uri: MLflow's store.
        study_run: Id of the run.
        note: The description, in Markdown.
        headline: What came out, in a sentence.
        metrics: Numbers of the study, by name.
    """
    from mlflow.entities import Metric, RunTag

    now = int(time.time() * 1000)
    entries = [Metric(name, value, now, 0) for name, value in metrics.items()]
    tags = [RunTag(NOTE, note), *([RunTag(HEADLINE, headline)] if headline else [])]
    store.connect(uri).log_batch(study_run, metrics=entries, tags=tags)


def describe_experiment(uri: str, study_run: str, question: str) -> None:
    """Writes the description of a study's experiment: the question, and its studies with links,
    the newest first."""
    client = store.connect(uri)
    experiment_id = client.get_run(study_run).info.experiment_id
    runs = client.search_runs(
        [experiment_id],
        "tags.`bermo.kind` = 'study'",
        max_results=_LISTED_STUDIES,
        order_by=["start_time DESC"],
    )
    lines = [f"{question}\n"] if question else []
    lines += [_list_study(experiment_id, run) for run in runs]
    client.set_experiment_tag(experiment_id, NOTE, "\n".join(lines))


def _list_study(experiment_id: str, run: Any) -> str:
    tags = run.data.tags
    name, outcome = tags["bermo.study"], tags.get(HEADLINE) or tags["bermo.status"]
    trials, about = (
        link_to_study(experiment_id, name),
        link_to_run(experiment_id, run.info.run_id),
    )
    return f"- **{name}** ([trials]({trials}), [description]({about})): {outcome}"


def add_images(uri: str, study_run: str, files: Iterable[Path], width: int = 760) -> list[str]:
    """Keeps copies of images, as wide as a description is; gives their artifacts' paths.

    MLflow shows an image in a description at its own size, whatever the room.
    """
    from PIL import Image

    client = store.connect(uri)
    paths = []
    for file in files:
        paths.append(f"{IMAGES}/{file.stem}.png")
        with Image.open(file) as image:
            image.thumbnail((width, 2 * width))
            client.log_image(study_run, image, artifact_file=paths[-1])
    return paths


def find_experiments(uri: str, run_ids: Sequence[str]) -> dict[str, str]:
    """The experiments that runs belong to, by the runs' ids."""
    client = store.connect(uri)
    return {run_id: str(client.get_run(run_id).info.experiment_id) for run_id in run_ids}
