"""Checkpoints that a run resumes from exactly.

A run reseeds at the start of every stretch between two evaluations, and checkpoints are written at
evaluations, so no generator state has to be kept (nor one for each worker).
"""

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from bermo_ray.pruning.pruner import Pruner
from bermo_ray.record import PREDICTIONS_FILE, Report
from bermo_ray.trial import Trial

WEIGHTS_FILE, SCORES_FILE = "model.safetensors", "scores.safetensors"
OPTIMIZER_FILE, BEST_FILE = "optimizer.pt", "best.safetensors"
PROGRESS_FILE = "progress.json"


@dataclass(frozen=True)
class BestModel:
    """A copy, in the CPU's memory, of the best model of a run so far."""

    step: int  # after which it was evaluated
    metric: float  # on the rows that choose
    weights: dict[str, torch.Tensor]
    scores: dict[str, torch.Tensor]  # none without a pruner

    @classmethod
    def copy(
        cls, step: int, metric: float, network: nn.Module, pruner: Pruner | None
    ) -> "BestModel":
        """Of the model as it is now, its weights dense."""
        scores = _copy_tensors(pruner.state_dict()) if pruner else {}
        return cls(step, metric, _copy_tensors(network.state_dict()), scores)

    def restore(self, network: nn.Module, pruner: Pruner | None) -> None:
        """Puts weights and scores back."""
        network.load_state_dict(self.weights)
        if pruner is not None:
            pruner.load_state_dict(self.scores)

    def save(self, folder: Path) -> None:
        """Adds it to a checkpoint."""
        tensors = {f"weights/{name}": tensor for name, tensor in self.weights.items()}
        tensors |= {f"scores/{name}": tensor for name, tensor in self.scores.items()}
        about = {"step": str(self.step), "metric": repr(self.metric)}
        save_file(tensors, folder / BEST_FILE, metadata=about)

    @classmethod
    def load(cls, folder: Path) -> "BestModel | None":
        """From a checkpoint; None where it has none."""
        if not (folder / BEST_FILE).is_file():
            return None
        with safe_open(folder / BEST_FILE, framework="pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        weights, scores = (
            {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            for prefix in ("weights/", "scores/")
        )
        return cls(int(about["step"]), float(about["metric"]), weights, scores)


def _copy_tensors(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0  # optimiser steps done
    total: int = 0  # steps of the run
    history: list[Report] = field(default_factory=list)  # every report so far
    dropping_order: list[int] | None = None  # layers dropped in this run, the first to go first

    @property
    def ended(self) -> bool:
        """Whether the run has made its last report."""
        return bool(self.history) and self.history[-1].status.ended


def save_checkpoint(
    folder: Path,
    trial: Trial,
    labels: tuple[str, ...],
    network: nn.Module,
    pruner: Pruner | None,
    optimizer: torch.optim.Optimizer,
    rates: LambdaLR,
    scaler: torch.amp.GradScaler,
    progress: Progress,
    predictions: pa.Table | None,
    best: BestModel | None = None,
) -> None:
    """Writes a checkpoint into an empty folder: all that a run goes on from or, with its
    ``predictions`` on the dev set, what is left of one that has ended: weights alone, with the
    masks folded in."""
    with pruner.frozen() if pruner and predictions is not None else nullcontext():
        save_model(network, str(folder / WEIGHTS_FILE))
    if predictions is None:
        if pruner is not None:
            save_file(pruner.state_dict(), folder / SCORES_FILE)
        state = {
            "optimizer": optimizer.state_dict(),
            "rates": rates.state_dict(),
            "scaler": scaler.state_dict(),
        }
        torch.save(state, folder / OPTIMIZER_FILE)
        if best is not None:
            best.save(folder)
    else:
        pq.write_table(predictions, folder / PREDICTIONS_FILE, compression="zstd")
    history = [report.to_dict() for report in progress.history]
    content = {**vars(progress), "history": history, "trial": json.loads(trial.to_json())}
    text = json.dumps(content | {"labels": labels}, indent=1)
    partial_file = folder / f"{PROGRESS_FILE}.partial"
    partial_file.write_text(text)
    partial_file.replace(folder / PROGRESS_FILE)  # the last to be there: see CheckpointFolder


def read_content(folder: Path) -> dict[str, Any]:
    """What a checkpoint says of itself in JSON: its progress, its trial, the task's labels."""
    content: dict[str, Any] = json.loads((folder / PROGRESS_FILE).read_text())
    return content


def read_progress(folder: Path) -> Progress:
    """How far the checkpoint is, without loading weights."""
    content = read_content(folder)
    history = [Report.from_dict(report) for report in content["history"]]
    return Progress(content["step"], content["total"], history, content["dropping_order"])


def load_checkpoint(
    folder: Path,
    network: nn.Module,
    pruner: Pruner | None,
    optimizer: torch.optim.Optimizer,
    rates: LambdaLR,
    scaler: torch.amp.GradScaler,
) -> None:
    """Puts network, scores, optimiser, rates and the scale of losses back as they were."""
    load_model(network, str(folder / WEIGHTS_FILE))
    if pruner is not None:
        pruner.load_state_dict(load_file(folder / SCORES_FILE))
    state = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    rates.load_state_dict(state["rates"])
    scaler.load_state_dict(state["scaler"])
