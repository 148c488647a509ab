"""Training runs of seconds, and reporters that break off or remember."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bermo_ray.record import Report
from bermo_ray.training.checkpoint_folder import SaveCheckpoint
from bermo_ray.training.reporter import LocalReporter
from bermo_ray.trial import L0, Data, Fusion, Optimizer, Trial

TIMED = ("rows_per_second", "latency")  # the figures that no two runs share


def small_trial(backbone: str, **changes: Any) -> Trial:
    """BERMo under L0 masks on a task of the embedded language: two epochs of six steps."""
    base = Trial(
        data=Data(task="tense", train_rows=96, dev_rows=51),
        backbone=backbone,
        fusion=Fusion(name="bermo"),
        pruning=L0(multiplier=2.0),
        optimizer=Optimizer(learning_rate=1e-3, score_learning_rate=0.1),
        epochs=2,
        batch_size=16,
        evaluations_per_epoch=2,
    )
    return base.replace(changes)


def untimed(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """What two runs of the same trial must agree on, to the bit."""
    return [{k: v for k, v in r.to_dict().items() if k not in TIMED} for r in reports]


class Interrupted(Exception):
    """The run is cut off."""


@dataclass
class InterruptingReporter(LocalReporter):
    """Dies right after the report of that step, as a killed process would."""

    stop_at: int = 0

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        super().report(report, save, history)
        if report.step == self.stop_at:
            raise Interrupted


@dataclass
class HistoryReporter(LocalReporter):
    """Remembers the history that came with each report too."""

    histories: list[Sequence[Report]] = field(default_factory=list)

    def report(
        self, report: Report, save: SaveCheckpoint | None, history: Sequence[Report] = ()
    ) -> None:
        super().report(report, save, history)
        self.histories.append(history)
