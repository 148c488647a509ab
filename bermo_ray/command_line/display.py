"""What a person watches: trials done, running, best so far, time left."""

import math
import time
from collections.abc import Collection, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bermo_ray.record import Report, Status
from bermo_ray.search.trial_names import describe_trial
from bermo_ray.trial import Trial


def format_clock(seconds: float) -> str:
    """``m:ss``, or ``h:mm:ss`` from an hour on.

    >>> format_clock(61), format_clock(3725)
    ('1:01', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Display:
    """A :class:`bermo_ray.record.Listener`: a live panel on a terminal, elsewhere one line per
    finished trial.

    Args:
        study: Name of the study.
        metric_name: Of the tasks' metric.
        varied: The fields in which the trials of the study differ; None: not known.
        console: Where it is shown.
    """

    def __init__(
        self,
        study: str,
        metric_name: str,
        varied: Collection[str] | None = None,
        console: Console | None = None,
    ) -> None:
        self.study, self.metric_name, self.varied = study, metric_name, varied
        self.console = console or Console(highlight=False)
        self.most_trials, self.concurrent = 0, 1
        self._opened = time.monotonic()
        self._trials: dict[str, Trial] = {}  # by attempt
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}  # of those that ended while it was shown
        self._reports: dict[str, Report] = {}  # the newest of each
        self._shares: dict[str, float] = {}  # of its steps that a trial has done
        self._live: Live | None = None

    def on_open(self, most_trials: int, concurrent: int, where: str) -> None:
        """Says what starts."""
        self.most_trials, self.concurrent = most_trials, concurrent
        self.console.print(f"{self.study}: {most_trials} trials, {concurrent} at once, on {where}")

    def on_start(self, attempt: str, trial: Trial) -> None:
        self._started.setdefault(attempt, time.monotonic())
        self._trials[attempt] = trial

    def on_known(self, attempt: str, trial: Trial, report: Report) -> None:
        self._trials[attempt], self._reports[attempt] = trial, report

    def on_report(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        self._reports[attempt] = reports[-1]
        if reports[-1].status.ended and attempt not in self._seconds:
            self._seconds[attempt] = time.monotonic() - self._started[attempt]
            self._print_end(attempt, reports[-1])

    def on_progress(self, attempt: str, share: float) -> None:
        self._shares[attempt] = share

    def on_refresh(self) -> None:
        """Redraws, at most four times per second."""
        if not self.console.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(self.panel())

    def on_close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def _ended(self) -> int:
        return sum(report.status.ended for report in self._reports.values())

    def _running(self) -> list[str]:
        return [attempt for attempt in self._started if attempt not in self._seconds]

    def _time_left(self) -> str:
        """What is left, at the pace of what was done since the first trial started."""
        shares = sum(self._shares.get(attempt, 0.0) for attempt in self._running())
        done = len(self._seconds) + shares
        if done <= 0:
            return "…"
        elapsed = time.monotonic() - min(self._started.values())
        return format_clock(elapsed / done * max(0.0, self.most_trials - self._ended - shares))

    def _outcome(self, report: Report) -> str:
        return f"{self.metric_name} {report.metric:.3f} at {report.remaining:.1%}"

    def _print_end(self, attempt: str, report: Report) -> None:
        what = describe_trial(self._trials[attempt], self.varied)
        completed = report.status is Status.COMPLETED
        outcome = self._outcome(report) if completed else f"{report.status}: {report.reason}"
        line = Text(f"{self._ended:>3}/{self.most_trials} {what:<38} {outcome}")
        left = "" if self.console.is_terminal else f" {self._time_left()} left"
        line.truncate(self.console.width - len(left), overflow="ellipsis", pad=bool(left))
        self.console.print(line.append(left), style="" if completed else "yellow")

    def panel(self) -> Group:
        """The live panel: how far the study is, what runs, and the frontier so far."""
        head = Table.grid(padding=(0, 1))
        head.add_row(
            ProgressBar(self.most_trials, self._ended, width=24),
            f"{self._ended}/{self.most_trials} trials",
            f"{format_clock(time.monotonic() - self._opened)} gone, {self._time_left()} left",
        )
        running = Table.grid(padding=(0, 1))
        for attempt in self._running():
            bar = ProgressBar(1.0, self._shares.get(attempt, 0.0), width=12)
            what = describe_trial(self._trials[attempt], self.varied)
            running.add_row("", bar, what, self._describe_running(attempt))
        frontiers = Table.grid(padding=(0, 1))
        for fusion, points in sorted(self._frontiers().items()):
            shown = "  ".join(f"{r.remaining:.0%} {r.metric:.3f}" for r in points)
            frontiers.add_row("", f"frontier, {fusion}", Text(shown, overflow="ellipsis"))
        return Group(head, running, frontiers)

    def _describe_running(self, attempt: str) -> str:
        report = self._reports.get(attempt)
        if report is None:
            return "" if attempt in self._shares else "starting"
        text = f"epoch {report.epoch:.1f}"
        if report.finite("metric", "remaining"):
            text += f"  {report.metric:.3f} at {report.remaining:.1%}"
        return text

    def _frontiers(self) -> dict[str, list[Report]]:
        """Of each fusion's pruned trials those that no other is smaller and better than, the
        smallest first."""
        by_fusion: dict[str, list[Report]] = {}
        for attempt, report in self._reports.items():
            trial = self._trials[attempt]
            if trial.pruning and report.usable("metric", "remaining"):
                by_fusion.setdefault(trial.fusion.name, []).append(report)
        frontiers = {}
        for fusion, reports in by_fusion.items():
            best, front = -math.inf, []
            for report in sorted(reports, key=lambda r: (r.remaining, -r.metric)):
                if report.metric > best:
                    best = report.metric
                    front.append(report)
            frontiers[fusion] = front
        return frontiers
