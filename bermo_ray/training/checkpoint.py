"""Checkpoints that a run resumes from exactly.

A run reseeds at the start of every stretch between two evaluations, and checkpoints lie on those
borders, so no generator state has to be kept (nor one for each worker).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from bermo_ray.pruning.pruner import Pruner

WEIGHTS, SCORES, OPTIMIZER = "model.safetensors", "scores.safetensors", "optimizer.pt"
PROGRESS, PREDICTIONS = "progress.json", "predictions.parquet"


@dataclass
class Progress:
    """Where a run is: optimiser steps done, and every report so far."""

    step: int
    total: int  # steps of the whole run
    history: list[dict[str, Any]]
    going: list[int] | None = None  # layers that go in this run, the first to go first


def save(
    folder: Path,
    trial_json: str,
    model: nn.Module,
    pruner: Pruner | None,
    optimizer: torch.optim.Optimizer,
    rates: LambdaLR,
    progress: Progress,
    labels: tuple[str, ...],
    predictions: pa.Table | None,
) -> None:
    """Writes a checkpoint into an empty folder. A final one has the predictions on the dev set and
    leaves out the optimiser's state."""
    save_model(model, str(folder / WEIGHTS))
    if pruner is not None:
        save_file(pruner.state_dict(), folder / SCORES)
    if predictions is None:
        state = {"optimizer": optimizer.state_dict(), "rates": rates.state_dict()}
        torch.save(state, folder / OPTIMIZER)
    else:
        pq.write_table(predictions, folder / PREDICTIONS, compression="zstd")
    content = {**vars(progress), "trial": json.loads(trial_json), "labels": labels}
    (folder / PROGRESS).write_text(json.dumps(content, indent=1))


def progress(folder: Path) -> Progress:
    """How far the checkpoint is, without loading weights."""
    content = json.loads((folder / PROGRESS).read_text())
    return Progress(content["step"], content["total"], content["history"], content.get("going"))


def load_weights(folder: Path, model: nn.Module, pruner: Pruner | None) -> None:
    """Puts weights, and scores if there are any, back as they were."""
    load_model(model, str(folder / WEIGHTS))
    if pruner is not None:
        pruner.load_state_dict(load_file(folder / SCORES))


def load(
    folder: Path,
    model: nn.Module,
    pruner: Pruner | None,
    optimizer: torch.optim.Optimizer,
    rates: LambdaLR,
) -> None:
    """Puts model, scores, optimiser and rates back as they were."""
    load_weights(folder, model, pruner)
    state = torch.load(folder / OPTIMIZER, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    rates.load_state_dict(state["rates"])
