"""Trials that earlier studies ran: a plan is told of them instead of running them again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bermo_ray.record import Report
from bermo_ray.search.grid import Grid
from bermo_ray.search.plan import Plan, PreviewRow
from bermo_ray.trial import Trial


@dataclass(frozen=True)
class KnownTrial:
    """A trial that trained to its end in an earlier study, and where its records are."""

    trial: Trial
    report: Report  # with what plans decide by
    run_id: str
    study: str
    checkpoint: str
    row: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # of its table


class ReusingPlan(Plan):
    """A plan of whose trials some are known: those are told at once, all others are run.

    The same Trial gives the same numbers, so that the plan itself notices nothing. What was taken
    is in :attr:`taken`.

    Args:
        plan: Which trials are wanted.
        known: Trials of earlier studies by :attr:`Trial.id`.
    """

    def __init__(self, plan: Plan, known: Mapping[str, KnownTrial]) -> None:
        self.plan, self.known, self.chooses = plan, dict(known), plan.chooses
        self.taken: dict[str, KnownTrial] = {}  # by Trial.id
        # A grid is known from its start; of another plan this is the most that there can be.
        reused = sum(t.id in known for t in plan.trials) if isinstance(plan, Grid) else 0
        self.most_trials = plan.most_trials - reused
        self._next: Trial | None = None
        self._take_known()

    def _take_known(self) -> None:
        """Asks the plan on until it wants a trial that has to be run, or none for now."""
        while self._next is None and (trial := self.plan.ask()) is not None:
            if trial.id in self.known:
                self.taken[trial.id] = self.known[trial.id]
                self.plan.tell(trial, [self.known[trial.id].report])
            else:
                self._next = trial

    def ask(self) -> Trial | None:
        self._take_known()
        trial, self._next = self._next, None
        return trial

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        self.plan.tell(trial, reports)
        self._take_known()  # else a plan that ends in known trials would not be finished

    @property
    def finished(self) -> bool:
        return self._next is None and self.plan.finished

    def representatives(self) -> list[Trial]:
        return self.plan.representatives()

    def varied_fields(self) -> frozenset[str]:
        return self.plan.varied_fields()

    def preview(self) -> list[PreviewRow]:
        return self.plan.preview()

    def to_json(self) -> str:
        return self.plan.to_json()

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        return self.plan.give_up_reason(trial, reports)
