import base64
import io
import re
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import bermo_ray as br
from bermo_ray import results
from bermo_ray.trial import Trial
from tests.support.result_rows import points
from tests.support.runs import small_trial

ROWS = ((0.1, 0.7, 0.6), (0.2, 0.6, 0.9), (0.4, 0.8, 0.75))  # the second is dominated
SHOWN = {
    "trial_json": Trial().to_json(), "trial_id": "abcdef012345", "learning_rate": 1e-3,
    "score_learning_rate": 0.1, "metric_name": "accuracy", "constant_metric": 0.5,
}  # fmt: skip


def rows_of(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_frontier_is_that_of_the_table_and_reads_as_arrow() -> None:
    table = points(*ROWS, **SHOWN)
    shown = br.Results(table)
    front = shown.frontier()
    assert front.table.equals(results.frontier(table))
    assert front.table["remaining"].to_pylist() == [0.1, 0.4]
    assert (len(shown), len(front)) == (3, 2)
    assert pa.table(shown).equals(table)
    assert pa.table(front).equals(front.table)
    assert repr(shown) == "Results(3 trials: 3 completed)"
    assert repr(front) == "Frontier(2 of 3 trials)"
    by_task = br.Results(pa.concat_tables([table, points((0.3, 0.9), **SHOWN, method="dense")]))
    assert by_task.frontier(("task",)).table["remaining"].to_pylist() == [0.1, 0.3]


def test_notebooks_get_a_table_and_a_figure_for_each_task() -> None:
    one, other = points(*ROWS, **SHOWN), points((0.3, 0.9), **SHOWN | {"task": "other"})
    shown = br.Results(pa.concat_tables([one, other]))
    cells = rows_of(shown._repr_html_())
    assert cells[0] == ["trial", "remaining", "metric", "seconds", "status"]
    assert [row[1] for row in cells[1:]] == ["10.0%", "20.0%", "40.0%", "30.0%"]
    html = shown.frontier()._repr_html_()
    cells = rows_of(html)
    assert [row[2:4] for row in cells] == [
        ["remaining", "accuracy"], ["30.0%", "0.9000"],
        ["remaining", "accuracy"], ["10.0%", "0.6000"], ["40.0%", "0.7500"],
    ]  # fmt: skip
    images = re.findall(r'src="data:image/png;base64,([^"]*)"', html)
    assert len(images) == 2
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(shown.frontier())
    assert "Models on the frontier" in console.export_text()


def test_where_no_trial_completed_it_says_so(tmp_path: Path) -> None:
    front = br.Results(points(*ROWS, **SHOWN | {"status": "failed"})).frontier()
    assert front._repr_html_() == "<p>None of 3 trials is on a frontier.</p>"
    assert front.save_figure(tmp_path / "f.png") == []


def test_figures_are_saved_one_for_each_task(tmp_path: Path) -> None:
    one, other = points(*ROWS, **SHOWN), points((0.3, 0.9), **SHOWN | {"task": "other"})
    files = br.Results(pa.concat_tables([one, other])).frontier().save_figure(tmp_path / "f.png")
    assert [file.name for file in files] == ["f.png", "f-2.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_a_study_runs_with_defaults_to_its_frontier(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    trial = small_trial(tiny, epochs=1, pruning=None)
    trials = trial.vary(fusion=["last", "bermo"], seed=range(2))
    shown = br.Study("mine", br.Grid(trials), backend="process").run()
    assert shown.table["trial_id"].to_pylist() == [t.id for t in trials]
    assert shown.table.schema == br.load("mine").schema
    assert shown.frontier().table.equals(br.frontier(shown.table))
    assert len(rows_of(shown._repr_html_())) == 1 + 4
