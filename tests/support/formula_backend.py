"""A backend whose trials end at once with numbers of a formula: a complete study in a second."""

import math
from collections.abc import Sequence

from bermo_ray.record import Listener, Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.plan import Plan
from bermo_ray.tracking.store import Store
from bermo_ray.trial import Penalized, Trial

DIVERGES_ABOVE = 40.0  # λ


def report_of(trial: Trial) -> Report:
    """The larger λ, the fewer weights and the worse the metric; BERMo loses less."""
    if not isinstance(trial.pruning, Penalized):
        return _completed(trial, 0.95, 1.0)
    multiplier = trial.pruning.multiplier
    if multiplier > DIVERGES_ABOVE:
        return Report(status=Status.DIVERGED, reason="the loss is nan at step 7", step=7)
    lost = 0.05 * math.log(1 + multiplier) * (0.5 if trial.fusion.name == "bermo" else 1.0)
    return _completed(trial, 0.95 - lost, 1 / (1 + multiplier / 5))


def _completed(trial: Trial, metric: float, remaining: float) -> Report:
    metric += 0.002 * (trial.seed % 3)
    return Report(
        status=Status.COMPLETED, step=20, epoch=2.0, metric=metric, metric_selection=metric,
        metric_verification=metric, constant_metric=0.5, remaining=remaining, density=remaining,
        rows_reported=100, loss=1 - metric, train_loss=1 - metric,
    )  # fmt: skip


class FormulaBackend:
    """Stands in for :class:`bermo_ray.backends.Backend`."""

    def find_problems(self, store: Store) -> list[str]:
        return []

    def open(self, store: Store) -> tuple[int, str]:
        return 1, "a formula"

    def run(
        self, dialogue: Dialogue, listeners: Sequence[Listener], store: Store, study: str
    ) -> Plan:
        """Each trial reports twice, halfway and at its end."""
        while (asked := dialogue.ask_next()) is not None:
            attempt, trial = asked
            end = report_of(trial)
            halfway = Report(step=5, epoch=1.0, metric=0.6, remaining=0.9)
            for listener in listeners:
                listener.on_start(attempt, trial)
                listener.on_report(attempt, [halfway], "")
                listener.on_report(attempt, [end], f"{store.checkpoints}/{study}/{attempt}")
            dialogue.tell(attempt, end)
        for listener in listeners:
            listener.on_close()
        return dialogue.plan

    def close(self) -> None:
        pass
