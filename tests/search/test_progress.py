import io
import pickle
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from bermo_ray.search.progress import Progress, clock
from bermo_ray.trial import Pruning, Trial


def tune(number: int, fusion: str, status: str, pruned: bool = True) -> Any:
    trial = Trial(pruning=Pruning(final_lambda=10.0) if pruned else None, seed=number)
    config = {"trial": trial.replace(fusion__name=fusion).to_json()}
    return SimpleNamespace(
        trial_id=str(number),
        config=config,
        status=status,
        last_result={},
        is_finished=lambda: status in ("TERMINATED", "ERROR"),
    )


def screen(terminal: bool) -> tuple[Progress, io.StringIO]:
    progress, out = Progress(6, 2, "accuracy"), io.StringIO()
    progress._console = Console(file=out, force_terminal=terminal, width=80, highlight=False)
    return progress, out


def report(metric: float, remaining: float, final: bool = True, **more: Any) -> dict[str, Any]:
    status = {"status": "completed" if final else "running"}
    base = {"metric": metric, "remaining": remaining, "epoch": 1.5, "final": final}
    return base | status | more


def drive(progress: Progress) -> list[Any]:
    trials = [
        tune(0, "last", "TERMINATED"),
        tune(1, "last", "TERMINATED"),
        tune(2, "bermo", "RUNNING"),
        tune(3, "bermo", "RUNNING", pruned=False),
    ]
    for trial in trials:
        progress.on_trial_start(0, trials, trial)
    results = [report(0.93, 0.8), report(0.92, 0.2), report(0.7, 0.9, final=False)]
    for trial, result in zip(trials[:3], results, strict=True):
        progress.on_trial_result(0, trials, trial, result)
        trial.last_result = result
    return trials


def test_lines_for_a_log_fit_80_columns() -> None:
    progress, out = screen(terminal=False)
    trials = drive(progress)
    why = "metric 0.5000 is no better than a constant answer"
    bad = report(0.5, 0.01) | {"status": "diverged", "reason": why}
    progress.on_trial_result(0, trials, trials[3], bad)
    progress.on_step_end(0, trials)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 for line in lines)
    assert "last l0 λ=10" in lines[0]
    assert "accuracy 0.930 at 80.0%" in lines[0]
    assert "diverged: metric 0.5000" in lines[2]
    assert all(line.rstrip().endswith("left") for line in lines)


def test_the_live_panel_shows_done_running_best_and_time_left() -> None:
    progress, out = screen(terminal=True)
    trials = drive(progress)
    progress.on_step_end(0, trials)
    progress.on_experiment_end(trials)
    plain = io.StringIO()
    Console(file=plain, width=80).print(progress._panel(trials))
    shown = plain.getvalue()
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "2/6 trials" in shown
    assert "left" in shown
    assert "epoch 1.5  0.700 at 90.0%" in shown
    assert "bermo dense rate 3.0e-05" in shown
    assert "starting" in shown
    assert "best last" in shown
    assert "accuracy 0.930 at 80.0%" in shown
    assert "sparsest within 2 points: 0.920 at 20.0%" in " ".join(shown.split())
    assert "accuracy 0.930" in out.getvalue()


def test_a_trial_lost_before_its_start_is_said() -> None:
    progress, out = screen(terminal=False)
    lost = tune(0, "last", "ERROR")
    progress.on_trial_error(0, [lost], lost)
    assert "failed: lost its process" in out.getvalue()


def test_it_survives_being_pickled_with_the_experiment() -> None:
    progress, _ = screen(terminal=True)
    drive(progress)
    again = pickle.loads(pickle.dumps(progress))
    assert (again.total, again.concurrent, again.metric) == (6, 2, "accuracy")


def test_clock() -> None:
    assert [clock(s) for s in (0, 59.6, 61, 3725)] == ["0:00", "1:00", "1:01", "1:02:05"]
