"""What a person watches: trials done, running, best so far, time left."""

import time
from typing import Any

from ray.tune import Callback
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bermo_ray.search.plan import dropping
from bermo_ray.trial import Trial


def clock(seconds: float) -> str:
    """``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def describe(trial: Trial, several: bool = False) -> str:
    """A trial in a few words: what differs between the trials of a search; ``several``: tasks."""
    words = [trial.data.task] if several else []
    words += [trial.fusion.name, dropping(trial)]
    method = trial.pruning.method.removesuffix("_movement") if trial.pruning else "dense"
    if trial.pruning and trial.pruning.target is not None:
        words += [method, f"to {trial.pruning.target:.3g}"]
    elif trial.pruning:
        words += [method, f"λ={trial.pruning.final_lambda:.3g}"]
        words += ["rates", f"{trial.optimizer.learning_rate:.1e}/{trial.optimizer.mask_rate:.1e}"]
    elif trial.layer_drop is None:
        words += [method, "rate", f"{trial.optimizer.learning_rate:.1e}"]
    return " ".join([*filter(None, words), *([f"seed {trial.seed}"] if trial.seed else [])])


class Progress(Callback):
    """A live panel on a terminal; a line a finished trial elsewhere.

    Pickled with the experiment, so only plain values are kept and the screen is opened when used.
    """

    def __init__(self, total: int, concurrent: int, metric: str, several: bool = False) -> None:
        self.total = total
        self.several = several
        self.concurrent = concurrent
        self.metric = metric
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self._started = time.monotonic()
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}  # trial id -> seconds it took, in this session
        self._last: dict[str, dict[str, Any]] = {}
        self._specs: dict[str, Trial] = {}
        self._live: Live | None = None
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        if self._console is None:
            self._console = Console()
        return self._console

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Redraws, at most four times a second."""
        if not self.console.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(self._panel(trials))

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._begun.setdefault(trial.trial_id, time.monotonic())
        self._specs[trial.trial_id] = Trial.from_json(trial.config["trial"])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._last[trial.trial_id] = result
        if result.get("final") and trial.trial_id not in self._ended:
            self._ended[trial.trial_id] = time.monotonic() - self._begun[trial.trial_id]
            self._say(trials, trial, result)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.on_trial_start(iteration, trials, trial)  # it may have been lost before its start
        self._ended[trial.trial_id] = time.monotonic() - self._begun[trial.trial_id]
        self._say(trials, trial, {"status": "failed", "reason": "lost its process"})

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _finished(self, trials: list[Any]) -> int:
        return sum(1 for t in trials if t.is_finished() or (t.last_result or {}).get("final"))

    def _left(self, done: int) -> str:
        if not self._ended:
            return "…"
        mean = sum(self._ended.values()) / len(self._ended)
        return clock(mean * (self.total - done) / self.concurrent)

    def _say(self, trials: list[Any], trial: Any, result: dict[str, Any]) -> None:
        done = max(self._finished(trials), len(self._ended))
        what = describe(self._specs[trial.trial_id], self.several)
        if result["status"] == "completed":
            outcome = f"{self.metric} {result['metric']:.3f} at {result['remaining']:.1%}"
        else:
            outcome = f"{result['status']}: {result.get('reason', '')}"
        line = Text(f"{done:>3}/{self.total} {what:<38} {outcome}")
        left = "" if self.console.is_terminal else f" {self._left(done)} left"
        line.truncate(self.console.width - len(left), overflow="ellipsis", pad=bool(left))
        self.console.print(
            line.append(left), style="" if result["status"] == "completed" else "yellow"
        )

    def _panel(self, trials: list[Any]) -> Group:
        done = self._finished(trials)
        head = Table.grid(padding=(0, 1))
        head.add_row(
            ProgressBar(self.total, done, width=24),
            f"{done}/{self.total} trials",
            f"{clock(time.monotonic() - self._started)} gone, {self._left(done)} left",
        )
        running = Table.grid(padding=(0, 2))
        for trial in trials:
            if trial.status == "RUNNING" and trial.trial_id not in self._ended:
                last = self._last.get(trial.trial_id, {})
                spec = self._specs.get(trial.trial_id)
                now = f"epoch {last.get('epoch', 0):.1f}" if last else "starting"
                if "metric" in last:
                    now += f"  {last['metric']:.3f} at {last['remaining']:.1%}"
                running.add_row(
                    "  ▸", describe(spec, self.several) if spec else trial.trial_id, now
                )
        best = Table.grid(padding=(0, 2))
        for fusion, (top, sparse) in sorted(self._best(trials).items()):
            best.add_row(
                f"  best {fusion}",
                f"{self.metric} {top['metric']:.3f} at {top['remaining']:.1%}",
                f"sparsest within 2 points: {sparse['metric']:.3f} at {sparse['remaining']:.1%}",
            )
        return Group(head, running, best)

    def _best(self, trials: list[Any]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        """Of each fusion's pruned trials: the best, and the sparsest within 2 points of it."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for trial in trials:
            spec, result = Trial.from_json(trial.config["trial"]), trial.last_result or {}
            if spec.pruning and result.get("status") == "completed":
                groups.setdefault(spec.fusion.name, []).append(result)
        found = {}
        for fusion, results in groups.items():
            top = max(results, key=lambda r: r["metric"])
            near = [r for r in results if r["metric"] >= top["metric"] - 0.02]
            found[fusion] = (top, min(near, key=lambda r: r["remaining"]))
        return found
