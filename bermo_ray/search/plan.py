"""Which trials a study runs, decided as results come in."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.record import Report
from bermo_ray.search.trial_names import describe_dropping, find_varied_fields
from bermo_ray.trial import Trial

PreviewRow = dict[str, str]  # of the table that a dry run prints


class Plan(ABC):
    """A study's trials, by ask and tell.

    1. :meth:`ask` gives the next trial, or None while results are due.
    2. :meth:`tell` hears how each trial that was asked for ended.
    3. :attr:`finished` says when no trial will be asked for any more.

    Deterministic: told the same ends in the same order it asks for the same trials, which is how a
    killed study finds back to where it was (its log is told again). A plan knows neither Ray nor
    MLflow.
    """

    most_trials: int  # if nothing is decided early
    chooses: bool = False
    """Whether it chooses among its trials, so that some rows must be kept from it."""

    @abstractmethod
    def ask(self) -> Trial | None:
        """The next trial; None while results are due, or when :attr:`finished`."""

    @abstractmethod
    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        """How a trial that was asked for ended: all of its reports with the figures that searches
        decide by, the last one last; none where its process was lost."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether no trial will be asked for any more."""

    @abstractmethod
    def representatives(self) -> list[Trial]:
        """Trials that stand for all: what is checked before anything starts."""

    @abstractmethod
    def preview(self) -> list[PreviewRow]:
        """What can be said of the trials before any has run, one row per trial."""

    def varied_fields(self) -> frozenset[str]:
        """In what its trials differ; see :func:`find_varied_fields`."""
        return find_varied_fields(self.representatives())

    @abstractmethod
    def to_json(self) -> str:
        """All of it, as the identity of what a study runs."""

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        """Why a running trial with these reports need not go on; None: let it."""
        return None


class Dialogue:
    """Asks and tells a plan and keeps the log of it, so that a fresh plan can be told again.

    The log is JSON: ``{"asked": attempt, "trial": id}`` and ``{"told": attempt, "reports": [...]}``
    in the order of events. An attempt is one run of a trial, named by whoever runs it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log: list[dict[str, Any]] = []
        self.running: dict[str, Trial] = {}  # by attempt
        self._reports: dict[str, list[Report]] = {}  # of those that run

    def ask(self, attempt: str) -> Trial | None:
        """The plan's next trial, under the name of its attempt."""
        trial = self.plan.ask()
        if trial is not None:
            self.running[attempt] = trial
            self.log.append({"asked": attempt, "trial": trial.id})
        return trial

    def give_up_reason(self, attempt: str, report: Report) -> str | None:
        """Takes in a report of a running trial; why it need not go on, or None."""
        if attempt not in self.running or report.status.ended:
            return None
        reports = self._reports.setdefault(attempt, [])
        reports.append(report.for_search())
        return self.plan.give_up_reason(self.running[attempt], reports)

    def tell(self, attempt: str, last: Report | None) -> None:
        """A trial ended with that report; None where its process was lost. Told once."""
        if attempt not in self.running:
            return
        reports = self._reports.pop(attempt, [])
        reports = [*reports, last.for_search()] if last is not None else []
        self.log.append({"told": attempt, "reports": [r.to_dict() for r in reports]})
        self.plan.tell(self.running.pop(attempt), reports)

    def replay(self, log: list[dict[str, Any]]) -> list[tuple[str, Trial, Report]]:
        """Tells the log again to the plan, which must not have been asked anything yet; gives the
        attempts that had ended, but for those that were lost.

        Raises:
            UserError: the plan asks for other trials than it did: another version made the log.
        """
        ended = []
        for entry in log:
            if "asked" in entry:
                trial = self.ask(entry["asked"])
                if trial is None or trial.id != entry["trial"]:
                    raise UserError(
                        "resume: this version would have asked for other trials than the study "
                        "did so far; resume it with the version that started it"
                    )
            else:
                reports = [Report.from_dict(report) for report in entry["reports"]]
                trial = self.running.pop(entry["told"])
                self.log.append(entry)
                self.plan.tell(trial, reports)
                if reports:
                    ended.append((entry["told"], trial, reports[-1]))
        return ended


def ask_all(plan: Plan) -> Iterator[Trial]:
    """The trials that a plan asks for until it waits for results or is finished."""
    while (trial := plan.ask()) is not None:
        yield trial


def preview_row(trial: Trial) -> PreviewRow:
    """What tells trials apart, for a preview."""
    return {
        "task": trial.data.task,
        "encoder": Path(trial.backbone).name,
        "fusion": trial.fusion.name,
        "layers": describe_dropping(trial) or "all",
        "pruning": trial.pruning.method if trial.pruning else "dense",
        "seed": str(trial.seed),
    }
