"""Which trials a study runs, decided as results come in."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

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
