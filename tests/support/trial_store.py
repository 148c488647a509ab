"""Small trials, trained without Ray and recorded as a study would."""

from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Data, Optimizer, Trial


def small_trial(backbone: str, **changes: Any) -> Trial:
    """Trains in a second; changes are :meth:`Trial.replace`'s."""
    trial = Trial(
        data=Data(task="tense", train_rows=64, dev_rows=30),
        backbone=backbone,
        optimizer=Optimizer(learning_rate=1e-3, score_learning_rate=0.1),
        epochs=1,
        batch_size=16,
    )
    return trial.replace(changes)


class TrialStore:
    """An MLflow store below a folder; checkpoints are beside it, named by the trial's id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = f"sqlite:///{folder / 'mlflow.db'}"
        self.client = MlflowClient(self.uri)

    def add(self, trial: Trial, status: str = "completed") -> str:
        """Trains a trial and records it; gives its run's id."""
        run_locally(trial, self.checkpoint(trial))
        tags = {
            "bermo.kind": "trial",
            "bermo.study": "s",
            "bermo.trial_id": trial.id,
            "bermo.status": status,
            "bermo.checkpoint": str(self.checkpoint(trial)),
        }
        return str(self.client.create_run("0", tags=tags).info.run_id)

    def checkpoint(self, trial: Trial) -> Path:
        return self.folder / trial.id
