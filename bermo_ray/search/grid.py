"""Trials that are all known beforehand."""

import json
from collections.abc import Sequence

from bermo_ray.errors import UserError
from bermo_ray.record import Report
from bermo_ray.search.plan import Plan, PreviewRow, preview_row
from bermo_ray.trial import Trial


class Grid(Plan):
    """Runs the given trials, each once, whatever comes out.

    >>> grid = Grid([Trial(seed=seed) for seed in (0, 1, 1)])
    >>> grid.most_trials
    2
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        if not trials:
            raise UserError("trials: there is none to run")
        self.trials = list({trial.id: trial for trial in trials}.values())
        self.most_trials = len(self.trials)
        self._asked = 0

    def ask(self) -> Trial | None:
        if self.finished:
            return None
        self._asked += 1
        return self.trials[self._asked - 1]

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        pass

    @property
    def finished(self) -> bool:
        return self._asked >= self.most_trials

    def representatives(self) -> list[Trial]:
        return self.trials

    def preview(self) -> list[PreviewRow]:
        return [preview_row(trial) | {"id": trial.id} for trial in self.trials]

    def to_json(self) -> str:
        return json.dumps({"trials": [json.loads(trial.to_json()) for trial in self.trials]})
