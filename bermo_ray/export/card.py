"""The model card of an exported trial."""

from pathlib import Path

from bermo_ray.export.compression import COMPRESSED, WEIGHTS
from bermo_ray.export.fusion_source import FUSION, FUSION_WEIGHTS, has_fusion
from bermo_ray.export.measurements import ModelMeasurements, measurement_rows
from bermo_ray.models.stock import attached_pooling
from bermo_ray.record import Status
from bermo_ray.training.model import TrainedModel

CARD, RECIPE = "README.md", "recipe.json"


def write_card(trained: TrainedModel, before: ModelMeasurements, after: ModelMeasurements) -> str:
    """The model card: what it is, its metric, the four measurements, and what they mean."""
    trial, report = trained.trial, trained.report
    method = trial.pruning.method if trial.pruning else "no pruning"
    layers = trained.model.dropped_layers
    dropped = f", layers {layers} dropped" if layers else ""
    completed = report.status is Status.COMPLETED
    status = "" if completed else f" ({report.status}: {report.reason})"
    table = "\n".join(f"| {' | '.join(row)} |" for row in measurement_rows(before, after))
    return f"""---
library_name: transformers
tags: [pruning, bermo_ray]
---

# {Path(trial.backbone).name} for {trial.data.task}

{method}, fusion `{trial.fusion.name}`{dropped}; remaining encoder parameters \
{report.remaining:.2%}.

- {trained.task.metric} on dev: **{report.metric:.4f}** (a constant answer: \
{report.constant_metric:.4f}){status}
- trial `{trial.id}`, seed {trial.seed}; `{RECIPE}` holds all of it

| | started from | this model | ratio |
|---|---|---|---|
{table}

{explain_measurements(trained)}

```python
{_usage(trained)}
```

`{COMPRESSED}` holds the same weights, bit for bit: `bermo-ray unpack .` makes `{WEIGHTS}` of it.
"""


def _usage(trained: TrainedModel) -> str:
    if has_fusion(trained):
        return f"from fusion import load  # {FUSION} in this folder\n\nmodel = load('.')"
    stock_class = trained.task.head.stock_class
    return f"from transformers import {stock_class}\n\nmodel = {stock_class}.from_pretrained('.')"


def explain_measurements(trained: TrainedModel) -> str:
    """What got smaller and what got faster, said plainly."""
    sentences = []
    if trained.masked_names:
        sentences.append(
            "Pruning made single weights zero. The compressed file is smaller for it; the dense "
            "file and a dense forward are not: zeros are stored and multiplied like any number. "
            "Speed needs kernels or hardware for sparse matrices."
        )
    if trained.model.dropped_layers and trained.model.stack.shared:
        sentences.append(
            "Dropping layers made it faster, but not smaller: the layers share their weights."
        )
    elif trained.model.dropped_layers:
        sentences.append("Dropping layers made both files smaller and every forward faster.")
    if mode := attached_pooling(trained.model.network):
        sentences.append(f"Its head reads the {mode} over a row's pieces, which `{FUSION}` takes.")
    if trained.trial.fusion.name != "last":
        size = sum(p.numel() for p in trained.model.fusion.parameters())
        sentences.append(f"The fusion adds {size:,} parameters, in `{FUSION_WEIGHTS}`.")
    return " ".join(sentences) or (
        "Nothing was taken away: it is as large and as fast as it started."
    )
