"""Studies whose trials have checkpoints of known sizes, without training anything."""

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bermo_ray.record import Report, Status
from bermo_ray.tracking import store
from bermo_ray.tracking.store import DATABASE, store_uri
from bermo_ray.trial import Trial
from tests.support.records import open_recorder

SIZE = 1000  # bytes of each checkpoint


def completed(remaining: float, metric: float, constant: float = 0.5) -> Report:
    """The last report of a trial."""
    return Report(
        status=Status.COMPLETED, step=10, metric=metric, metric_selection=metric,
        metric_verification=metric, remaining=remaining, constant_metric=constant,
        rows_per_second=100.0,
    )  # fmt: skip


@functools.cache
def _empty_database() -> bytes:
    """MLflow takes seconds to make its tables."""
    with tempfile.TemporaryDirectory() as folder:
        store.connect(store_uri(Path(folder)))
        return (Path(folder) / DATABASE).read_bytes()


def make_store(runs: Path) -> str:
    """The address of the store in a folder, which is made where there is none."""
    runs.mkdir(parents=True, exist_ok=True)
    if not (runs / DATABASE).is_file():
        (runs / DATABASE).write_bytes(_empty_database())
    return store_uri(runs)


def write_checkpoint(folder: Path, size: int = SIZE) -> Path:
    """A folder with so many bytes."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"\0" * (size - 10))
    (folder / "progress.json").write_bytes(b"{}        ")
    return folder


def write_study(
    runs: Path,
    name: str,
    trials: Sequence[tuple[Trial, Report]],
    status: Status = Status.COMPLETED,
    checkpoints: Path | None = None,
) -> list[Path]:
    """A study with a checkpoint for each trial; gives their folders.

    A trial whose report has not ended is interrupted.
    """
    uri, root = make_store(runs), (checkpoints or runs / "checkpoints") / name
    folders = []
    listener = open_recorder(uri, name)
    for number, (trial, report) in enumerate(trials):
        folders.append(write_checkpoint(root / f"{number:05d}"))
        listener.on_start(f"{number:05d}", trial)
        listener.on_report(f"{number:05d}", [report], str(folders[-1]))
    listener.on_close()
    listener.close(status)
    return folders


def set_checkpoint(runs: Path, trial: Trial, value: str) -> None:
    """Has the record of a trial name another folder."""
    uri = store_uri(runs)
    run = store.find_trial(uri, trial.id)
    store.connect(uri).set_tag(run.info.run_id, "bermo.checkpoint", value)
