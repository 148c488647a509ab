"""What the scored strategies of layer dropping go by, as a table (methods §3)."""

import pyarrow as pa
import torch

from bermo_ray.models import backbone, layer_drop
from bermo_ray.tasks import encoding, registry
from bermo_ray.training import trained
from bermo_ray.training.contribution import contribution
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
    """A row for each layer of the model that the trial starts from, before any is dropped.

    ``contribution`` is over the trial's dev rows, in one pass.
    """
    trial = trial.replace(layer_drop=None, mode="finetune")
    device = device or torch.device("cpu")
    task = registry.resolve(trial.data)
    tokenizer = backbone.tokenizer(trial.backbone)
    data = encoding.load(task, trial.data, "dev", trial.seed, tokenizer)
    built = trained.start(trial, task)
    columns = layer_drop.weight_scores(built.stack)
    columns["contribution"] = contribution(built, data, 4 * trial.batch_size, device)
    rows = [
        {"task": task.name, "backbone": trial.backbone, "layer": layer}
        | {name: values[place] for name, values in columns.items()}
        for place, layer in enumerate(built.layers)
    ]
    return pa.Table.from_pylist(rows, schema=SCORES)
