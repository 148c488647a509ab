"""One trial, run here and now."""

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table

from bermo_ray.errors import UserError
from bermo_ray.html import rich_to_html
from bermo_ray.record import MEASUREMENTS, Report
from bermo_ray.tasks.registry import select_task
from bermo_ray.training.check import check_trials
from bermo_ray.training.checkpoint import read_progress
from bermo_ray.training.model import TrainedModel, is_checkpoint, load_trained, read_trial
from bermo_ray.training.reporter import run_locally
from bermo_ray.trial import Trial

_CURVES = tuple(field for field in MEASUREMENTS if field.curve or field.name == "status")
HISTORY_SCHEMA = pa.schema([(field.name, field.type) for field in _CURVES])


@dataclass(frozen=True, repr=False)
class TrialResult:
    """What a trial came to.

    Args:
        trial: What was run.
        reports: What every evaluation found; the last one says how it ended.
    """

    trial: Trial
    reports: tuple[Report, ...]
    _loaded: TrainedModel | UserError

    @property
    def report(self) -> Report:
        """The last report."""
        return self.reports[-1]

    @property
    def metric(self) -> float:
        """The task's own metric on dev, at the end."""
        return self.report.metric

    @property
    def model(self) -> Any:
        """The trained `transformers` model, in evaluation mode, with its masks folded in.

        Raises:
            UserError: Its weights are not finite: the trial diverged.
        """
        return self.trained.model.network

    @property
    def trained(self) -> TrainedModel:
        """The model with its task, its layers and the count of its parameters; as :attr:`model`."""
        if isinstance(self._loaded, UserError):
            raise self._loaded
        return self._loaded

    @cached_property
    def history(self) -> pa.Table:
        """A row for each evaluation, with the measurements of :class:`~bermo_ray.record.Report`
        that are made at every one of them; null where something was not measured."""
        rows = [report.to_dict() for report in self.reports]
        for row in rows:
            row["other_metrics"] = list(row.get("other_metrics", {}).items())
        return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)

    def __repr__(self) -> str:
        name = select_task(self.trial.data).metric
        end = f"{self.report.status}, {name} {self.metric:.4f}"
        return f"TrialResult({self.trial.id}: {end}, {self.report.remaining:.1%} remaining)"

    def __rich__(self) -> Table:
        return _history_table(self)

    def _repr_html_(self) -> str:
        """For notebooks: how it went."""
        return rich_to_html(_history_table(self))


def _history_table(result: TrialResult) -> Table:
    """How a trial went, a line for each evaluation."""
    metric_name, report = select_task(result.trial.data).metric, result.report
    title = f"Trial {result.trial.id}: {report.status}"
    table = Table(title=title + (f", {report.reason}" if report.reason else ""), box=None)
    for name in ("step", "epoch", "train loss", "dev loss", metric_name, "remaining"):
        table.add_column(name, justify="right")
    for row in result.reports:
        table.add_row(
            str(row.step), f"{row.epoch:.2f}", f"{row.train_loss:.4f}", f"{row.loss:.4f}",
            f"{row.metric:.4f}", f"{row.remaining:.1%}",
        )  # fmt: skip
    return table


def run(trial: Trial, folder: Path | str | None = None, threads: int = 1) -> TrialResult:
    """Trains a trial in this process, without Ray and without a record.

    Args:
        trial: What is trained.
        folder: Where its checkpoint is kept, and taken up again; None: nowhere.
        threads: Of torch.

    Raises:
        UserError: Whatever is wrong with the trial, one line each; ``folder`` holds another one.
    """
    check_trials([trial])
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="bermo-") as temporary:
            return _run_in(Path(temporary) / "trial", trial, threads)
    folder = Path(folder).expanduser()
    if is_checkpoint(folder) and (earlier := read_trial(folder)).id != trial.id:
        raise UserError(f"folder: {folder} holds trial {earlier.id}, not {trial.id}; use another")
    return _run_in(folder, trial, threads)


def _run_in(folder: Path, trial: Trial, threads: int) -> TrialResult:
    run_locally(trial, folder, threads)
    try:
        loaded: TrainedModel | UserError = load_trained(folder)
    except UserError as error:
        loaded = error
    return TrialResult(trial, tuple(read_progress(folder).history), loaded)
