"""Which trials a study runs, decided as results come in."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.trial import Trial

Report = Mapping[str, Any]  # a trial's last one
Row = dict[str, str]  # of the table that a dry run prints


class Plan(ABC):
    """A study's trials. Deterministic: told the same ends in the same order it asks for the same
    trials, which is how a killed study finds back to where it was (its log is told again)."""

    most: int  # trials, if nothing is decided early

    @abstractmethod
    def ask(self) -> Trial | None:
        """The next trial; None while results are due, or when :attr:`finished`."""

    @abstractmethod
    def tell(self, trial: Trial, report: Report | None) -> None:
        """How a trial that was asked for ended; no report where its process was lost."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether no trial will be asked for any more."""

    @abstractmethod
    def examples(self) -> list[Trial]:
        """Trials that stand for all: what is checked before anything starts."""

    @abstractmethod
    def preview(self) -> list[Row]:
        """What can be said of the trials before any has run, a row each."""

    @abstractmethod
    def to_json(self) -> str:
        """All of it, as the identity of what a study runs."""

    def hopeless(self, trial: Trial, curve: Sequence[Report]) -> str | None:
        """Why a running trial with these reports need not go on; None: let it."""
        return None


def completed(report: Report | None, *keys: str) -> bool:
    """Whether a trial completed with finite numbers under these keys."""
    if report is None or report.get("status") != "completed":
        return False
    values = [report.get(key) for key in keys]
    return all(isinstance(v, int | float) and math.isfinite(v) for v in values)


class Grid(Plan):
    """Trials that are all known beforehand."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        if not trials:
            raise UserError("there is no trial to run: an option names nothing")
        self.trials = list({trial.id: trial for trial in trials}.values())  # each once
        self.most = len(self.trials)
        self._asked = 0

    def ask(self) -> Trial | None:
        if self.finished:
            return None
        self._asked += 1
        return self.trials[self._asked - 1]

    def tell(self, trial: Trial, report: Report | None) -> None:
        pass

    @property
    def finished(self) -> bool:
        return self._asked >= self.most

    def examples(self) -> list[Trial]:
        return self.trials

    def preview(self) -> list[Row]:
        return [row_of(trial) | {"id": trial.id} for trial in self.trials]

    def to_json(self) -> str:
        return json.dumps({"trials": [json.loads(trial.to_json()) for trial in self.trials]})


def row_of(trial: Trial) -> Row:
    """What tells trials apart, for a preview."""
    drop = trial.layer_drop
    return {
        "task": trial.data.task,
        "encoder": Path(trial.backbone).name,
        "fusion": trial.fusion.name,
        "layers": dropping(trial) if drop else "all",
        "pruning": trial.pruning.method if trial.pruning else "dense",
        "seed": str(trial.seed),
    }


def dropping(trial: Trial) -> str:
    """Which layers go, in a word: ``top −2``."""
    drop = trial.layer_drop
    if drop is None:
        return ""
    if drop.layers is not None:
        return "−" + ",".join(map(str, drop.layers))
    if drop.threshold is not None:
        return f"{drop.strategy} >{drop.threshold:g}"
    return f"{drop.strategy} −{drop.count}"
