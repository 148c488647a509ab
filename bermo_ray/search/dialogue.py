"""A plan's questions and answers, with a log on disk from which a killed study goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bermo_ray.errors import UserError
from bermo_ray.json_lines import JsonLines
from bermo_ray.record import Report, Status
from bermo_ray.search.plan import Plan
from bermo_ray.space import watch_space
from bermo_ray.trial import Trial

LOG_FILE = "log.jsonl"  # in a study's folder


class Dialogue:
    """Asks and tells a plan and keeps the log of it, which a fresh plan can be told again: the one
    truth of a resume, wherever the trials run.

    The log is JSON: ``{"asked": attempt, "trial": id}`` and ``{"told": attempt, "reports": [...]}``
    in the order of events. An attempt is one run of a trial within the study.

    An event is in the log before anything comes of it. One that does not fit on the disk raises
    :class:`OutOfSpaceError`: it has not happened, and the dialogue must end there.

    Args:
        plan: Which must not have been asked anything yet.
        file: Where the log goes; None: nowhere.
    """

    def __init__(self, plan: Plan, file: Path | None = None) -> None:
        self.plan = plan
        self.log: list[dict[str, Any]] = []
        self.running: dict[str, Trial] = {}  # by attempt
        self._asked = 0
        self._reports: dict[str, list[Report]] = {}  # of those that run
        self._interrupted: list[str] = []  # attempts of an earlier process that are to go on
        self._file = JsonLines(file) if file else None

    @property
    def finished(self) -> bool:
        """Whether no trial runs, and none will be asked for any more."""
        return self.plan.finished and not self.running

    def ask_next(self) -> tuple[str, Trial] | None:
        """The next attempt and its trial: one that was interrupted, or a new one that the plan asks
        for; None while results are due, or when all have been asked for."""
        if self._interrupted:
            attempt = self._interrupted.pop(0)
            return attempt, self.running[attempt]
        attempt = f"{self._asked:05d}"
        trial = self.ask(attempt)
        return None if trial is None else (attempt, trial)

    def ask(self, attempt: str) -> Trial | None:
        """The plan's next trial, under the name of its attempt."""
        trial = self.plan.ask()
        if trial is not None:
            self._write({"asked": attempt, "trial": trial.id})
            self._asked += 1
            self.running[attempt] = trial
        return trial

    def give_up_reason(
        self, attempt: str, report: Report, history: Sequence[Report] = ()
    ) -> str | None:
        """Takes in a report of a running trial; why it need not go on, or None.

        Args:
            attempt: Of the trial.
            report: The newest one.
            history: All reports up to it, of a trial that was taken up again.
        """
        if attempt not in self.running:
            return None
        self._take_in(attempt, [*history, report])
        if report.status is not Status.RUNNING:
            return None
        return self.plan.give_up_reason(self.running[attempt], self._reports[attempt])

    def _take_in(self, attempt: str, reports: Sequence[Report]) -> None:
        """One report for each step, as of a trial that was never cut off: what is told again takes
        the place of what was told before. How it ended is :meth:`tell`'s."""
        new = [report.for_search() for report in reports if report.status is Status.RUNNING]
        if new:
            before = [r for r in self._reports.get(attempt, []) if r.step < new[0].step]
            by_step = {report.step: report for report in (*before, *new)}
            self._reports[attempt] = list(by_step.values())

    def tell(self, attempt: str, last: Report | None) -> None:
        """A trial ended with that report; None where its process was lost. Told once."""
        if attempt not in self.running:
            return
        reports = self._reports.get(attempt, [])
        reports = [*reports, last.for_search()] if last is not None else []
        self._write({"told": attempt, "reports": [r.to_dict() for r in reports]})
        self._reports.pop(attempt, None)
        self.plan.tell(self.running.pop(attempt), reports)

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is not None:
            with watch_space("runs", self._file.file.parent):
                self._file.append(entry)
        self.log.append(entry)

    def resume(self) -> list[tuple[str, Trial, Report]]:
        """Takes up the log on disk, as :meth:`replay`; none without one."""
        return self.replay(self._file.read() if self._file else [])

    def replay(self, log: list[dict[str, Any]]) -> list[tuple[str, Trial, Report]]:
        """Tells a log again to the plan; gives the attempts that had ended, but for those that were
        lost. Those that had not come first among :meth:`ask_next`.

        Raises:
            UserError: the plan asks for other trials than it did: another version made the log.
        """
        ended = []
        for entry in log:
            if "asked" in entry:
                trial = self.plan.ask()
                if trial is None or trial.id != entry["trial"]:
                    raise UserError(
                        "resume: this version would have asked for other trials than the study "
                        "did so far; resume it with the version that started it"
                    )
                self._asked += 1
                self.running[entry["asked"]] = trial
            else:
                reports = [Report.from_dict(report) for report in entry["reports"]]
                trial = self.running.pop(entry["told"])
                self.plan.tell(trial, reports)
                if reports:
                    ended.append((entry["told"], trial, reports[-1]))
            self.log.append(entry)
        self._interrupted = list(self.running)
        return ended
