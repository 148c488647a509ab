"""The examples of CONTRIBUTING.md: each at most 30 lines of code, and each run for real."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bermo_ray import plugins
from bermo_ray.errors import UserError
from bermo_ray.models.fusion import FUSIONS
from bermo_ray.pruning.masks import METHODS
from bermo_ray.record import Status
from bermo_ray.search.grid import Grid
from bermo_ray.study import Study
from bermo_ray.tasks.registry import TASKS
from bermo_ray.tracking.store import Store
from bermo_ray.trial import PRUNING_SETTINGS, Data, Trial
from tests.support.studies import ENVIRONMENT, ROOT

MOST_LINES = 30
BLOCKS = re.findall(
    r"```python\n# (\w+)\.py\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S
)
EXAMPLES = dict(BLOCKS)
PLUGINS = ("my_task", "my_fusion", "my_method")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The examples as files that can be imported; what they register is forgotten afterwards."""
    path = tmp_path / "mine"
    path.mkdir()
    for name, code in EXAMPLES.items():
        (path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(path))
    registries: list[dict[str, object]] = [FUSIONS, METHODS, TASKS, PRUNING_SETTINGS]  # type: ignore[list-item]
    before = [dict(registry) for registry in registries]
    yield path
    for registry, content in zip(registries, before, strict=True):
        registry.clear()
        registry.update(content)
    for name in EXAMPLES:
        sys.modules.pop(name, None)


def test_each_example_is_short() -> None:
    assert set(EXAMPLES) == {"my_task", "my_fusion", "my_method", "my_plan", "my_study"}
    for name, code in EXAMPLES.items():
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= MOST_LINES, f"{name}: {len(lines)} lines"


def plugin_trials(tiny: str) -> list[Trial]:
    data = {"task": "dog_first"}
    base = Trial().replace(backbone=tiny, data=data, epochs=1, batch_size=16)
    pruned = base.replace(
        pruning={"method": "random", "initial_density": 0.5, "final_density": 0.5}
    )
    return [base.replace(fusion="last_two"), pruned.replace(optimizer={"warmup": 0})]


@pytest.mark.ray
def test_what_a_plugin_defines_reaches_rays_workers(
    folder: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is on this process's path alone: Ray has to bring the modules along."""
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match="unknown task 'dog_first'"):
        Study(
            "s", Grid([Trial().replace(data={"task": "dog_first"})]), store=Store(tmp_path)
        ).check()
    plugins.load_plugins(PLUGINS)
    study = Study("s", Grid(plugin_trials(tiny)), store=Store(tmp_path), plugins=PLUGINS)
    rows = study.run().table.to_pylist()
    fused, pruned = sorted(rows, key=lambda row: row["method"])  # two at once: any may start first
    assert [row["reason"] for row in (fused, pruned) if row["status"] == "failed"] == []
    assert (fused["task"], fused["fusion"]) == ("dog_first", "last_two")
    assert (pruned["method"], pruned["density"]) == ("random", 0.5)


def test_the_plugin_examples_train_in_this_process(folder: Path, tiny: str, tmp_path: Path) -> None:
    plugins.load_plugins(PLUGINS)
    study = Study("s", Grid(plugin_trials(tiny)), store=Store(tmp_path), backend="process")
    rows = study.run().table.to_pylist()
    assert all(Status(row["status"]).measured for row in rows)
    assert rows[1]["density"] == 0.5


def test_an_installed_plugin_is_found_by_its_entry_point(folder: Path) -> None:
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bermo_ray.plugins]\nmine = my_fusion\n")
    importlib.invalidate_caches()
    assert [e.module for e in entry_points(group=plugins.ENTRY_POINTS)] == ["my_fusion"]
    assert "last_two" not in FUSIONS
    plugins.load_plugins()
    assert "last_two" in FUSIONS


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (None, r"^plugin: 'absent' can't be imported \(ModuleNotFoundError: No module"),
        ("1 / 0", r"^plugin: 'absent' can't be imported \(ZeroDivisionError: division by zero\)$"),
    ],
)
def test_a_plugin_that_can_not_be_imported_is_one_line(
    folder: Path, code: str | None, line: str
) -> None:
    if code is not None:
        (folder / "absent.py").write_text(code)
    with pytest.raises(UserError, match=line):
        plugins.load_plugins(["absent"])


def test_the_plan_stops_when_the_metric_no_longer_rises(
    folder: Path, tiny: str, tmp_path: Path
) -> None:
    plan_type = importlib.import_module("my_plan").LongerAndLonger
    data = Data(task="tense", train_rows=32, dev_rows=20)
    base = Trial(data=data, backbone=tiny, batch_size=16)
    study = Study("s", plan_type(base), store=Store(tmp_path), backend="process")
    table = study.run().table
    assert study.plan.finished
    assert study.plan.ask() is None
    epochs, metrics = (table[name].to_pylist() for name in ("epochs", "metric_selection"))
    assert epochs == [1, 2, 4, 8][: len(epochs)]
    rising = [b > max(metrics[: i + 1]) for i, b in enumerate(metrics[1:])]
    assert rising[:-1] == [True] * (len(rising) - 1)
    assert len(epochs) == 4 or not rising[-1]


def test_the_study_is_a_program(folder: Path, tiny: str, tmp_path: Path) -> None:
    call = [sys.executable, str(folder / "my_study.py"), "--backbone", tiny, "--runs", "runs"]
    call += [
        "--plugin",
        "my_fusion",
        "--name",
        "s",
        "--train-rows",
        "48",
        "--dev-rows",
        "20",
        "--epochs",
        "1",
    ]
    call += ["--batch-sizes", "8", "16", "--backend", "process"]
    done = subprocess.run(
        call, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 trials ended" in done.stdout
    table = pq.read_table(tmp_path / "runs" / "s" / "trials.parquet")
    assert table["batch_size"].to_pylist() == [8, 16]
