"""What the scored strategies of layer dropping go by, as a table (docs/methods.md §3)."""

import pyarrow as pa
import torch

from bermo_ray.models.backbone import load_tokenizer
from bermo_ray.models.layer_drop import weight_scores
from bermo_ray.tasks.encoding import encode_split
from bermo_ray.tasks.registry import resolve_task
from bermo_ray.training.contribution import layer_similarity
from bermo_ray.training.model import build_model
from bermo_ray.trial import Trial

SCORES = pa.schema([
    pa.field("task", pa.string()),
    pa.field("backbone", pa.string()),
    pa.field("layer", pa.int64(), metadata={"meaning": "counted from 1"}),
    pa.field("variance", pa.float64(), metadata={"meaning": "of the final matrix: lowest go"}),
    pa.field("aggregate", pa.float64(), metadata={"meaning": "Σ|w| of it: lowest go"}),
    pa.field("contribution", pa.float64(), metadata={"meaning": "cosine of CLS: highest go"}),
])  # fmt: skip


def layer_scores(trial: Trial, device: torch.device | None = None) -> pa.Table:
    """A row of :data:`SCORES` for each layer of the model that the trial starts from, before any is
    dropped.

    ``contribution`` is over the trial's training rows, in one pass.
    """
    trial = trial.replace(layer_drop=None, mode="finetune")
    task = resolve_task(trial.data)
    data = encode_split(task, trial.data, "train", trial.seed, load_tokenizer(trial.backbone))
    model = build_model(trial, task)
    scores = weight_scores(model.stack)
    scores["contribution"] = layer_similarity(
        model, data, 4 * trial.batch_size, device or torch.device("cpu")
    )
    rows = [
        {"task": task.name, "backbone": trial.backbone, "layer": layer}
        | {strategy: values[index] for strategy, values in scores.items()}
        for index, layer in enumerate(model.layers_left)
    ]
    return pa.Table.from_pylist(rows, schema=SCORES)
