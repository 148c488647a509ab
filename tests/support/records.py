"""Studies written to a store as the driver writes them, without training anything."""

from collections.abc import Collection, Sequence

from bermo_ray.record import Report
from bermo_ray.search.trial_names import find_varied_fields
from bermo_ray.tracking.journal import Event
from bermo_ray.tracking.recorder import Recorder
from bermo_ray.tracking.study_run import open_study
from bermo_ray.trial import Trial

RESOURCES = {"workers": 1, "gpus": False, "cpus_per_worker": 1}


class WaitingRecorder(Recorder):
    """Has each record in the store before it returns."""

    def _record(self, event: Event) -> None:
        super()._record(event)
        self.wait()


def open_recorder(
    uri: str, study: str, kind: str = "l0_frontier", varied: Collection[str] | None = None
) -> Recorder:
    """A recorder of a new study."""
    run_id = open_study(uri, kind, study, {"task": "tense"}, "{}")
    return WaitingRecorder(
        uri, study, run_id, RESOURCES, varied, metric_of=lambda trial: "accuracy"
    )


def write_study(
    uri: str,
    study: str,
    trials: Sequence[tuple[Trial, Sequence[Report]]],
    kind: str = "l0_frontier",
) -> None:
    """A study of these trials, each with its reports, one by one."""
    recorder = open_recorder(uri, study, kind, find_varied_fields(trial for trial, _ in trials))
    for number, (trial, reports) in enumerate(trials):
        attempt = f"{study}{number}"
        recorder.on_start(attempt, trial)
        for report in reports:
            recorder.on_report(attempt, [report], "")
    recorder.on_close()
