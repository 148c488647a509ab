"""What a trial's process does before and around its training."""

from pathlib import Path
from typing import Any

from bermo_ray.ray_backend.trials import RayReporter
from bermo_ray.record import Status
from bermo_ray.training.checkpoint_folder import CheckpointFolder
from bermo_ray.training.loop import train
from bermo_ray.training.reporter import run_locally
from tests.support.runs import small_trial, untimed


class Session:
    """Stands in for ``ray.tune``."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []

    def report(self, result: dict[str, Any]) -> None:
        self.results.append(result)


def test_a_trial_killed_between_its_end_and_the_last_move_lies_where_its_record_says(
    tiny: str, tmp_path: Path
) -> None:
    trial = small_trial(tiny)
    for name in ("local", "ray"):
        folder = tmp_path / name
        reports = run_locally(trial, folder)
        folder.rename(tmp_path / f"{name}.new")
        if name == "local":
            last = run_locally(trial, folder)[-1]
        else:
            session = Session()
            last = train(trial, RayReporter(session, 0, 1, False, CheckpointFolder(folder)))
            assert session.results[0]["checkpoint"] == str(folder)
        assert last.status is not Status.RUNNING
        assert untimed([last]) == untimed(reports[-1:])
        assert (folder / "model.safetensors").is_file()
        assert not (tmp_path / f"{name}.new").exists()
