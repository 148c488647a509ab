"""``bermo-ray doctor``: what is there, what is missing, and how to get it."""

import os
import platform
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Literal

from bermo_ray.errors import UserError
from bermo_ray.tracking.store import RUNS, SQLITE, store_uri

State = Literal["ok", "note", "missing"]
_MARKS = {"ok": "ok     ", "note": "note   ", "missing": "MISSING"}
_HUB_SECONDS = 5.0
_EXIT_MISSING = 1


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. A ``note`` says what some studies need and others do not."""

    state: State
    topic: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{_MARKS[self.state]}  {self.topic:<9}  {self.text}"
        return f"{line}\n{'':20}{self.remedy}" if self.remedy else line


def doctor(
    runs: Path = Path(RUNS), tracking_uri: str | None = None, data_dir: str | None = None
) -> None:
    """Look at the installation, devices, store, data and the hub: what is missing, and how to get
    it.

    Args:
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        data_dir: Folder of real tasks' files; $BERMO_DATA if not given.
    """
    looks: list[Callable[[], Iterator[Finding]]] = [
        look_at_installation,
        look_at_devices,
        lambda: look_at_store(runs, tracking_uri),
        lambda: look_at_data(data_dir),
        look_at_hub,
    ]
    missing = 0
    for look in looks:
        for finding in look():
            missing += finding.state == "missing"
            print(finding, flush=True)
    if missing:
        sys.exit(_EXIT_MISSING)


def look_at_installation() -> Iterator[Finding]:
    """Python and the packages that this one asks for, each within its range."""
    from packaging.requirements import Requirement

    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()}")
    asked = [Requirement(text) for text in distribution("bermo-ray").requires or []]
    wrong = []
    for requirement in asked:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            wrong.append(f"{requirement.name} {installed}, expected {requirement.specifier}")
    remedy = "in a checkout: pip install -c constraints.txt -e ."
    for problem in wrong:
        yield Finding("missing", "packages", problem, remedy)
    if not wrong:
        names = ("bermo-ray", "torch", "transformers", "ray", "optuna", "mlflow")
        yield Finding("ok", "packages", ", ".join(f"{name} {version(name)}" for name in names))


def look_at_devices() -> Iterator[Finding]:
    """CPUs, memory for Ray's objects, and GPUs."""
    import torch

    yield Finding("ok", "cpus", f"{os.cpu_count()} cores, {platform.machine()}")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            memory = f"{about.total_memory / 2**30:.0f} GiB"
            yield Finding("ok", "gpus", f"{about.name}, {memory}: use it with --gpus")
    else:
        text = "none that torch can use; the embedded default needs none"
        remedy = "" if torch.version.cuda else "this torch is built for CPUs; install a CUDA build"
        yield Finding("note", "gpus", text, remedy)
    free = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    state: State = "ok" if free > 2 else "missing"
    remedy = "" if free > 2 else "Ray fails on a full disk: free some, or set TMPDIR"
    yield Finding(state, "disk", f"{free:.0f} GiB free in {tempfile.gettempdir()}", remedy)


def look_at_store(runs: Path, tracking_uri: str | None = None) -> Iterator[Finding]:
    """Whether records can be written and read."""
    from bermo_ray.results.overview import list_studies

    uri = store_uri(runs, tracking_uri)
    folder = runs.expanduser().absolute()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        yield Finding("missing", "store", f"can't write in {nearest}", "give another --runs")
        return
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file():
        yield Finding("ok", "store", f"{folder} will be made by the first study")
        return
    try:
        studies = list_studies(uri)
    except UserError as error:
        yield Finding("missing", "store", error.problems[0], "move it away, or give another --runs")
        return
    yield Finding("ok", "store", f"{studies.num_rows} studies in {uri}")


def look_at_data(data_dir: str | None = None) -> Iterator[Finding]:
    """Which real tasks have their rows on this machine."""
    from bermo_ray.language.tasks import TASKS as EMBEDDED
    from bermo_ray.tasks.registry import TASKS
    from bermo_ray.tasks.sources import DATA_VARIABLE
    from bermo_ray.trial import Data

    yield Finding("ok", "data", f"the embedded language: {len(EMBEDDED)} tasks, offline")
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    if not folder:
        text = "real tasks are fetched from the hub"
        yield Finding(
            "note", "data", text, f"or set --data-dir or ${DATA_VARIABLE} to their folder"
        )
        return
    real = [name for name in TASKS if name.split("/")[0] not in EMBEDDED]
    present = [
        name for name in real
        if not TASKS[name].find_problems(Data(task=name, data_dir=folder))
    ]  # fmt: skip
    lacking = [name for name in real if name not in present]
    yield Finding(
        "ok" if present else "missing", "data", f"{folder}: {', '.join(present) or 'no task'}"
    )
    if lacking:
        yield Finding("note", "data", f"not there: {', '.join(lacking)}", "see docs/data.md")


def look_at_hub() -> Iterator[Finding]:
    """Whether encoders and data can be fetched."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        text = "HF_HUB_OFFLINE is set: only what is cached or in a folder can be used"
        yield Finding("note", "hub", text, f"cache: {constants.HF_HUB_CACHE}")
        return
    try:
        with urllib.request.urlopen(constants.ENDPOINT, timeout=_HUB_SECONDS):
            yield Finding("ok", "hub", f"{constants.ENDPOINT} answers")
    except OSError as error:
        reason = getattr(error, "reason", error)
        remedy = "studies on the embedded default need none; give folders as --backbone"
        yield Finding("note", "hub", f"{constants.ENDPOINT} does not answer ({reason})", remedy)
