import io
from typing import Any

from rich.console import Console

from bermo_ray.command_line.display import Display, describe_trial, format_clock
from bermo_ray.record import Report, Status
from bermo_ray.trial import L0, Movement, Trial


def trial(number: int, fusion: str, pruned: bool = True) -> Trial:
    pruning = L0(multiplier=10.0) if pruned else None
    return Trial(pruning=pruning, seed=number).replace(fusion=fusion)


def screen(terminal: bool) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, highlight=False)
    display = Display("s", "accuracy", console=console)
    display.on_open(6, 2, "this machine")
    return display, out


def report(metric: float, remaining: float, status: Status = Status.COMPLETED, **more: Any) -> Any:
    return Report(metric=metric, remaining=remaining, epoch=1.5, status=status, **more)


def drive(display: Display) -> None:
    for number, (fusion, pruned) in enumerate(
        [("last", True), ("last", True), ("bermo", True), ("bermo", False)]
    ):
        display.on_start(str(number), trial(number, fusion, pruned))
    reports = [report(0.93, 0.8), report(0.92, 0.2), report(0.7, 0.9, Status.RUNNING)]
    for number, each in enumerate(reports):
        display.on_report(str(number), [each], "")


def test_lines_for_a_log_fit_80_columns() -> None:
    display, out = screen(terminal=False)
    drive(display)
    why = "metric 0.5000 is no better than a constant answer"
    display.on_report("3", [report(0.5, 0.01, Status.DIVERGED, reason=why)], "")
    display.on_refresh()
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "s: 6 trials, 2 at once, on this machine"
    assert "last l0 λ=10" in lines[1]
    assert "accuracy 0.930 at 80.0%" in lines[1]
    assert "diverged: metric 0.5000" in lines[3]
    assert all(line.rstrip().endswith("left") for line in lines[1:])


def test_the_live_panel_shows_done_running_best_and_time_left() -> None:
    display, out = screen(terminal=True)
    drive(display)
    display.on_refresh()
    display.on_close()
    plain = io.StringIO()
    Console(file=plain, width=80).print(display.panel())
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


def test_trials_of_a_resumed_study_that_had_ended_are_counted() -> None:
    display, _ = screen(terminal=True)
    display.on_known("7", trial(7, "last"), report(0.9, 0.5))
    drive(display)
    plain = io.StringIO()
    Console(file=plain, width=80).print(display.panel())
    assert "3/6 trials" in plain.getvalue()


def test_a_trial_lost_at_its_start_is_said() -> None:
    display, out = screen(terminal=False)
    display.on_start("0", trial(0, "last"))
    display.on_report("0", [Report(status=Status.FAILED, reason="lost its process: killed")], "")
    assert "failed: lost its process" in out.getvalue()


def test_trials_in_a_few_words() -> None:
    base = Trial().replace(optimizer={"learning_rate": 1e-3, "score_learning_rate": 0.1})
    assert describe_trial(base, with_task=True) == "tense last dense rate 1.0e-03"
    assert describe_trial(base.replace(pruning=Movement(final_density=0.15))) == (
        "last movement to 0.15"
    )
    soft = base.replace(pruning={"method": "soft_movement", "multiplier": 3.0}, seed=2)
    assert describe_trial(soft) == "last soft λ=3 rates 1.0e-03/1.0e-01 seed 2"
    asked = base.replace(pruning={"method": "l0", "target_density": 0.2})
    assert describe_trial(asked) == "last l0 to 0.2"
    assert describe_trial(base.replace(layer_drop={"count": 2})) == "last top −2"


def test_clock() -> None:
    assert [format_clock(s) for s in (0, 59.6, 61, 3725)] == ["0:00", "1:00", "1:01", "1:02:05"]
