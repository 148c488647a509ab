"""No room for a study's records: it ends, and none of what was not recorded counts as done."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.search import Searcher

from bermo_ray.json_lines import JsonLines
from bermo_ray.ray_backend.callbacks import GiveUpStopper, ListenerCallback, StudyEnded
from bermo_ray.ray_backend.searcher import PlanSearcher
from bermo_ray.ray_backend.trials import TrialConfig, encode_result
from bermo_ray.ray_backend.tuner import INTERRUPTED, PlanRun
from bermo_ray.record import Report, Status
from bermo_ray.search.dialogue import Dialogue
from bermo_ray.search.grid import Grid
from bermo_ray.space import OutOfSpaceError
from bermo_ray.training.reporter import Resources
from bermo_ray.trial import Trial

CONFIG = TrialConfig(Resources(), "x")
ENDED = encode_result(Report(step=3, metric=0.5, status=Status.COMPLETED))


def make_searcher(file: Path) -> PlanSearcher:
    return PlanSearcher(Dialogue(Grid([Trial(seed=seed) for seed in range(3)]), file), CONFIG)


@contextmanager
def full_disk(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within: nothing can be added to a log."""

    def fail(lines: JsonLines, entry: Mapping[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with patch.context() as patched:
        patched.setattr(JsonLines, "append", fail)
        yield


def attempts_of_a_resume(file: Path) -> list[str]:
    """What is still to be run, by the log."""
    searcher = make_searcher(file)
    searcher.dialogue.resume()
    configs = [searcher.suggest(str(i)) for i in range(4)]
    return [config["attempt"] for config in configs if isinstance(config, dict)]


def test_an_end_that_is_not_logged_ends_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = make_searcher(tmp_path / "log.jsonl")
    for i in range(2):
        searcher.suggest(str(i))
    with full_disk(monkeypatch):
        searcher.on_trial_complete("0", ENDED)
    assert str(searcher.stop_reason).startswith(f"runs: no room left in {tmp_path}; make some")
    # There is room again, but the study is over: Tune stops what still runs.
    searcher.on_trial_complete("0", None, error=True)
    searcher.on_trial_complete("1", ENDED)
    assert searcher.suggest("2") == Searcher.FINISHED
    assert attempts_of_a_resume(tmp_path / "log.jsonl") == ["00000", "00001", "00002"]


def test_a_trial_that_is_not_logged_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = make_searcher(tmp_path / "log.jsonl")
    searcher.suggest("0")
    with full_disk(monkeypatch):
        assert searcher.suggest("1") == Searcher.FINISHED
    assert "no room left" in str(searcher.stop_reason)
    assert list(searcher.dialogue.running) == ["00000"]
    assert searcher.suggest("1") == Searcher.FINISHED
    assert attempts_of_a_resume(tmp_path / "log.jsonl") == ["00000", "00001", "00002"]


class Recorder:
    """A listener for which there may be no room."""

    def __init__(self) -> None:
        self.is_full, self.heard = False, list[str]()

    def on_start(self, attempt: str, trial: Trial) -> None:
        self._record(f"start {attempt}")

    def on_report(self, attempt: str, reports: Sequence[Report], checkpoint: str) -> None:
        self._record(f"report {attempt}")

    def on_close(self) -> None:
        self._record("close")

    def _record(self, event: str) -> None:
        if self.is_full:
            raise OutOfSpaceError("runs: no room left")
        self.heard.append(event)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def start(callback: ListenerCallback, searcher: PlanSearcher, trial_id: str) -> Any:
    """A trial as Tune's callbacks get it."""
    config = searcher.suggest(trial_id)
    trial = SimpleNamespace(config=config, error_file=None)
    callback.on_trial_start(0, [], trial)
    return trial


@pytest.mark.parametrize("ended", [True, False])
def test_a_report_that_is_not_recorded_ends_the_study(ended: bool, tmp_path: Path) -> None:
    searcher, recorder, other = make_searcher(tmp_path / "log.jsonl"), Recorder(), Recorder()
    callback = ListenerCallback([recorder, other], searcher)
    one, two = (start(callback, searcher, trial_id) for trial_id in "01")
    callback.on_step_begin(1, [])
    recorder.is_full = True
    callback.on_trial_result(1, [], one, ENDED if ended else encode_result(Report(step=1)))
    recorder.is_full = False
    # The rest of Tune's step: nothing more is recorded, nor told.
    if ended:
        searcher.on_trial_complete("0", ENDED)
    callback.on_trial_result(1, [], two, ENDED)
    searcher.on_trial_complete("1", ENDED)
    lost = SimpleNamespace(config=two.config, error_file=None)
    callback.on_trial_error(1, [], lost)
    with pytest.raises(StudyEnded):
        callback.on_step_begin(2, [])
    callback.on_experiment_end([])
    assert recorder.heard == ["start 00000", "start 00001", "close"]
    assert other.heard == recorder.heard
    assert searcher.stop_reason == "runs: no room left"
    assert attempts_of_a_resume(tmp_path / "log.jsonl") == ["00000", "00001", "00002"]


@pytest.mark.parametrize("reason", [None, INTERRUPTED])
def test_no_room_for_the_last_record_leaves_no_listener_open(
    reason: str | None, tmp_path: Path
) -> None:
    dialogue = make_searcher(tmp_path / "log.jsonl").dialogue
    run = PlanRun(dialogue, CONFIG, [], name="s", concurrent=1)
    run._searcher.stop_reason = reason
    full, other = Recorder(), Recorder()
    full.is_full = True
    ListenerCallback([other, full], run._searcher).on_experiment_end([])
    assert other.heard == ["close"]
    if reason == INTERRUPTED:  # whoever pressed Ctrl-C knows why it ends
        assert run.result() is None
    else:
        with pytest.raises(OutOfSpaceError, match="^runs: no room left$"):
            run.result()


class Remembering(Grid):
    """Remembers the reports by which trials may be given up."""

    steps: list[int]

    def give_up_reason(self, trial: Trial, reports: Sequence[Report]) -> str | None:
        self.steps = [report.step for report in reports]
        return "late" if len(reports) == 3 else None


def test_a_resumed_trial_is_given_up_by_all_its_reports() -> None:
    plan = Remembering([Trial()])
    searcher = PlanSearcher(Dialogue(plan), CONFIG)
    searcher.suggest("0")
    stopper, reports = GiveUpStopper(searcher), [Report(step=step) for step in (1, 2, 3)]
    assert not stopper("0", encode_result(reports[1], history=reports[:2]))
    assert plan.steps == [1, 2]
    assert not stopper("0", {"done": True})
    result = encode_result(reports[2])
    assert stopper("0", result)
    assert plan.steps == [1, 2, 3]
    searcher.on_trial_complete("0", result)
    assert [r["step"] for r in searcher.dialogue.log[-1]["reports"]] == [1, 2, 3, 3]
