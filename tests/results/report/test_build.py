"""A study's report from its store: what is in it, and that it is one safe file."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results.report import make_report, read_record, save_drawings, write_report
from bermo_ray.results.report.blocks import DataTable, Drawing, Link, Page
from bermo_ray.results.report.record import NothingToReportError, StudyRecord
from bermo_ray.results.report.render import render_page
from bermo_ray.tracking.store import store_uri
from bermo_ray.trial import L0, Trial
from tests.support.report_store import KEPT, SCRIPT
from tests.support.result_rows import result_table


@pytest.fixture(scope="module")
def written(report_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    """The page of study ``one``, and its file's text."""
    file = tmp_path_factory.mktemp("report") / "r.html"
    page = write_report("one", store_uri(report_runs), file)
    assert [f.name for f in file.parent.iterdir()] == ["r.html"]  # nothing half-written beside it
    return page, file.read_text()


class Outline(HTMLParser):
    """Checks that tags nest, and remembers ids, links and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.sources += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        self.scripts += tag == "script"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_what_the_study_has(written: tuple[Page, str]) -> None:
    page, text = written
    assert [section.title for section in page.sections] == [
        "", "Verdict", "Frontier", "Intervals", "Results", "Mixing weights",
        "Where weights remain", "Training", "Trials that did not complete", "All trials",
        "How to reproduce",
    ]  # fmt: skip
    assert "<h1>Is it &amp; smaller?</h1>" in text
    assert "<p>It is <code>&lt;said&gt;</code> to be.</p>" in text
    assert "8 completed, 1 failed" in page.subtitle
    assert "here: the estimate is 0.80× (95 % interval 0.60 to 0.90, 3 seeds)" in text
    assert "a paper: a claim (1.40×)" in text
    assert '<pre class="command">run it</pre>' in text
    names = [drawing.name for drawing in page.drawings]
    assert names == [
        "frontier", "intervals", "mixing-weights", "sparsity-1", "sparsity-2", "training",
        "remaining",
    ]  # fmt: skip


def test_it_is_one_file_that_needs_no_network_and_runs_no_text(
    written: tuple[Page, str],
) -> None:
    _, text = written
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.scripts == 1  # its own
    inside = ("#", "data:image/png;base64,")  # of this page, or a picture within it
    outside = [source for source in outline.sources if not source.startswith(inside)]
    leading = {source.partition("/#/runs/")[0] for source in outside}
    assert leading == {"http://127.0.0.1:5000"}
    assert SCRIPT not in text
    assert text.count("&lt;script&gt;alert(1)") == 2  # in a cell, and why a trial failed


def test_points_of_the_frontier_tell_of_their_trials(
    written: tuple[Page, str], report_runs: Path
) -> None:
    page, text = written
    (frontier,) = (drawing for drawing in page.drawings if drawing.name == "frontier")
    record = read_record("one", store_uri(report_runs))
    rows = [r for r in record.table.to_pylist() if r["status"] == "completed"]
    assert len(frontier.points) == len(rows) == 8
    row = next(r for r in rows if r["method"] == "l0" and r["seed"] == 1 and r["fusion"] == "last")
    told = frontier.points[f"trial:{row['run_id']}"]
    assert told.url == f"http://127.0.0.1:5000/#/runs/{row['run_id']}"
    assert told.text.splitlines()[:2] == [f"trial {row['trial_id'][:6]}: last, l0", "λ 3"]
    assert {"seed 1", "remaining 44.0%", "accuracy 0.8800"} <= set(told.text.splitlines())
    for point in frontier.points.values():
        assert text.count(f'href="{point.url}"') == 2  # here, and in the table of all trials
    dense = next(r for r in rows if r["method"] == "dense")
    assert "λ" not in frontier.points[f"trial:{dense['run_id']}"].text


def test_heat_maps_have_the_recorded_shares(written: tuple[Page, str], report_runs: Path) -> None:
    page, _ = written
    figure = next(d.figure for d in page.drawings if d.name == "sparsity-1")
    assert figure is not None
    shares = figure.axes[0].get_images()[0].get_array()
    assert np.asarray(shares).ravel().tolist() == [25, 75]
    record = read_record("one", store_uri(report_runs))
    runs = dict(
        zip(record.table["run_id"].to_pylist(), record.table["method"].to_pylist(), strict=True)
    )
    for run_id, method in runs.items():
        assert record.read_kept_weights(run_id) == (KEPT if method == "l0" else [])


def test_curves_go_over_the_evaluations(report_runs: Path, written: tuple[Page, str]) -> None:
    record = read_record("one", store_uri(report_runs))
    row = next(r for r in record.table.to_pylist() if r["remaining"] == 0.4)
    curves = record.curves[row["run_id"]]
    assert curves["epoch"] == {1: 0.5, 2: 1.0}
    assert curves["metric"] == pytest.approx({1: 0.78, 2: 0.88})
    assert curves["remaining"] == pytest.approx({1: 0.7, 2: 0.4})
    figure = next(d.figure for d in written[0].drawings if d.name == "remaining")
    assert figure is not None
    lines = {
        line.get_label(): np.asarray(line.get_ydata()).tolist()
        for line in figure.axes[0].get_lines()
    }
    # Of seeds with 40 and 44 % at the end, 70 and 72 % midway.
    assert lines["last, l0"] == pytest.approx([71, 42])
    assert lines["bermo, dense"] == pytest.approx([100, 100])


def test_all_trials_are_listed_with_links(written: tuple[Page, str]) -> None:
    (section,) = (s for s in written[0].sections if s.title == "All trials")
    (table,) = section.blocks
    assert isinstance(table, DataTable)
    assert len(table.rows) == 9
    assert all(isinstance(row[0], Link) for row in table.rows)
    assert table.summary == "9 trials: 8 completed, 1 failed"


def test_figures_are_saved_as_png_and_svg(written: tuple[Page, str], tmp_path: Path) -> None:
    pngs = save_drawings(written[0], tmp_path / "figures")
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        f"{d.name}.{kind}" for d in written[0].drawings for kind in ("png", "svg")
    }
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in pngs)


def test_a_study_without_a_finished_trial_is_one_clear_line(
    report_runs: Path, tmp_path: Path
) -> None:
    with pytest.raises(NothingToReportError) as caught:
        write_report("young", store_uri(report_runs), tmp_path / "r.html")
    (line,) = caught.value.problems
    assert re.search("'young' has no finished trial to report on .trials: 1 interrupted.", line)
    assert not (tmp_path / "r.html").exists()


def test_a_report_that_cannot_be_written_leaves_nothing(report_runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="out: can't write .*: No such file or directory"):
        write_report("one", store_uri(report_runs), tmp_path / "no" / "r.html")
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(UserError, match="out: can't write"):
        write_report("one", store_uri(report_runs), tmp_path / "taken.html")
    assert [file.name for file in tmp_path.iterdir()] == ["taken.html"]


def test_links_lead_where_they_are_told(report_runs: Path, tmp_path: Path) -> None:
    page = write_report("one", store_uri(report_runs), tmp_path / "r.html", "http://host:1/")
    drawing = page.drawings[0]
    assert isinstance(drawing, Drawing)
    assert all(p.url.startswith("http://host:1/#/runs/") for p in drawing.points.values())


def test_a_study_of_500_trials_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [
        Trial(seed=seed, pruning=L0(multiplier=1.0 + m)) for m in range(50) for seed in range(10)
    ]
    rows = [
        {
            "task": "tense", "backbone": "embedded", "fusion": "last", "method": "l0",
            "status": "completed", "seed": trial.seed, "remaining": 0.02 + number / 600,
            "metric": 0.5 + number / 1200, "metric_selection": 0.5 + number / 1200,
            "multiplier": 1.0, "run_id": f"{number:032d}", "trial_id": trial.id,
            "recipe": trial.recipe, "trial_json": trial.to_json(), "started": number,
            "layers_dropped": 0, "seconds": 1.0, "mixing_weights": [1 / 13] * 13,
        }
        for number, trial in enumerate(trials)
    ]  # fmt: skip
    curves = {
        row["run_id"]: {
            "epoch": {step: step / 10 for step in range(30)},
            "metric": {step: step / 30 for step in range(30)},
        }
        for row in rows
    }
    record = StudyRecord("large", "l0_frontier", "none", {}, {}, result_table(*rows), curves=curves)
    monkeypatch.setattr(StudyRecord, "read_kept_weights", lambda record, run_id: [])
    page = make_report(record)
    (frontier,) = (d for d in page.drawings if d.name == "frontier")
    assert len(frontier.points) == 500
    assert len(render_page(page).encode()) < 1_000_000
