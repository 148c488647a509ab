"""Questions and answers with a log: a full disk ends them, and a resume loses nothing of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bermo_ray.json_lines import JsonLines
from bermo_ray.record import Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.grid import Grid
from bermo_ray.search.in_process import run_in_process
from bermo_ray.space import OutOfSpaceError
from bermo_ray.trial import Trial
from tests.support.runs import small_trial
from tests.support.small_disks import fill_up, mount_disk


class RememberingPlan(Grid):
    """Remembers the steps of what it is asked and told about each trial, by seed."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__(list(trials))
        self.seen: list[tuple[int, list[int]]] = []
        self.told: dict[int, list[int]] = {}

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        self.seen.append((trial.seed, [report.step for report in reports]))
        return None

    def tell(self, trial: Trial, reports: Sequence[Report]) -> None:
        self.told[trial.seed] = [report.step for report in reports]


def make_plan(trials: int = 3) -> RememberingPlan:
    return RememberingPlan([Trial(seed=seed) for seed in range(trials)])


def at(step: int, status: Status = Status.RUNNING) -> Report:
    return Report(step=step, status=status, metric_selection=step / 10)


DONE = Status.COMPLETED


def test_attempts_are_numbered_on_through_a_resume(tmp_path: Path) -> None:
    dialogue = Dialogue(make_plan(5), tmp_path / "log.jsonl")
    assert [asked[0] for _ in range(2) if (asked := dialogue.ask_next())] == ["00000", "00001"]
    dialogue.tell("00000", at(3, DONE))
    resumed = Dialogue(make_plan(5), tmp_path / "log.jsonl")
    resumed.resume()
    names = [asked[0] for _ in range(4) if (asked := resumed.ask_next())]
    assert names == ["00001", "00002", "00003", "00004"]
    assert resumed.ask_next() is None
    assert [entry.get("asked") for entry in resumed.log if "asked" in entry] == [
        "00000", "00001", "00002", "00003", "00004"
    ]  # fmt: skip


def test_a_resumed_trials_earlier_reports_are_known_to_the_plan(tmp_path: Path) -> None:
    first = Dialogue(make_plan(1), tmp_path / "log.jsonl")
    first.ask_next()
    first.give_up_reason("00000", at(1))
    first.give_up_reason("00000", at(2))

    plan = make_plan(1)
    resumed = Dialogue(plan, tmp_path / "log.jsonl")
    resumed.resume()
    resumed.ask_next()
    resumed.give_up_reason("00000", at(2), [at(1), at(2)])
    resumed.give_up_reason("00000", at(3))
    resumed.tell("00000", at(4, DONE))
    assert plan.seen == [(0, [1, 2]), (0, [1, 2, 3])]
    assert plan.told == {0: [1, 2, 3, 4]}
    assert [r["step"] for r in resumed.log[-1]["reports"]] == [1, 2, 3, 4]


def test_one_that_had_ended_unheard_is_told_with_all_its_reports() -> None:
    plan = make_plan(1)
    dialogue = Dialogue(plan)
    dialogue.ask_next()
    history = [at(1), at(2), at(3, DONE)]
    assert dialogue.give_up_reason("00000", history[-1], history) is None
    dialogue.tell("00000", history[-1])
    assert (plan.seen, plan.told) == ([], {0: [1, 2, 3]})


def test_what_a_retried_trial_tells_again_is_known_once() -> None:
    plan = make_plan(1)
    dialogue = Dialogue(plan)
    dialogue.ask_next()
    for report in (at(1), at(2), at(3)):
        dialogue.give_up_reason("00000", report)
    dialogue.give_up_reason("00000", at(2), [at(1), at(2)])  # from its last checkpoint
    assert plan.seen[-1] == (0, [1, 2])
    dialogue.give_up_reason("00000", at(1))  # and then there was none
    dialogue.give_up_reason("00000", Report(status=Status.INTERRUPTED))
    dialogue.tell("00000", at(2, DONE))
    assert plan.seen[-1] == (0, [1])
    assert plan.told == {0: [1, 2]}


class Breaks:
    """A listener that stops the study at a report."""

    def __init__(self, at_report: int) -> None:
        self.left = at_report

    def on_report(self, attempt: str, reports: Any, checkpoint: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


@pytest.mark.parametrize("at_report", [1, 3, 4, 6])
def test_the_log_of_a_resumed_study_is_that_of_one_left_alone(
    tiny: str, tmp_path: Path, at_report: int
) -> None:
    trials = [small_trial(tiny, seed=seed) for seed in (0, 1)]  # of four reports each
    undisturbed = Dialogue(RememberingPlan(trials))
    run_in_process(undisturbed, [], tmp_path / "undisturbed")

    log = tmp_path / "log.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_in_process(
            Dialogue(RememberingPlan(trials), log), [Breaks(at_report)], tmp_path / "cut"
        )
    resumed = Dialogue(RememberingPlan(trials), log)
    resumed.resume()
    run_in_process(resumed, [], tmp_path / "cut")
    assert resumed.log == undisturbed.log
    assert JsonLines(log).read() == undisturbed.log


def test_what_does_not_fit_in_the_log_has_not_happened(tmp_path: Path) -> None:
    with mount_disk(tmp_path / "disk", 1) as disk:
        plan = make_plan(3)
        dialogue = Dialogue(plan, disk / "log.jsonl")
        dialogue.ask_next()
        dialogue.ask_next()
        file = disk / "log.jsonl"
        file.write_bytes(file.read_bytes().rstrip().ljust(4095) + b"\n")  # its page is full
        before = list(dialogue.log)
        ballast = fill_up(disk)
        with pytest.raises(OutOfSpaceError, match=f"^runs: no room left in {disk}; make some"):
            dialogue.tell("00000", at(1, DONE))
        assert plan.told == {}
        with pytest.raises(OutOfSpaceError):
            dialogue.ask_next()
        assert dialogue.log == before
        assert list(dialogue.running) == ["00000", "00001"]
        ballast.unlink()
        assert JsonLines(file).read() == before
