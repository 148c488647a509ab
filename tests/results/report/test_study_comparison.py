"""Two studies side by side: ``two`` needs half of the weights of ``one`` for the same metric."""

import dataclasses
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bermo_ray.errors import UserError
from bermo_ray.results.report import compare_studies, read_record
from bermo_ray.results.report.blocks import DataTable, Page, Paragraphs
from bermo_ray.results.report.record import StudyRecord
from bermo_ray.results.report.render import render_page
from bermo_ray.tracking.store import store_uri
from tests.support.report_store import write_frontier_study

UI = "http://127.0.0.1:5000"


@pytest.fixture(scope="module")
def records(report_runs: Path) -> tuple[StudyRecord, StudyRecord]:
    uri = store_uri(report_runs)
    return read_record("one", uri), read_record("two", uri)


@pytest.fixture(scope="module")
def page(records: tuple[StudyRecord, StudyRecord]) -> Page:
    return compare_studies(*records, UI)


def rows_of(page: Page, title: str) -> list[list[str]]:
    (section,) = (section for section in page.sections if section.title == title)
    (table,) = (block for block in section.blocks if isinstance(block, DataTable))
    return [[str(cell) for cell in row] for row in table.rows]


def test_ratios_are_those_of_the_weights(page: Page) -> None:
    rows = rows_of(page, "Weights at the same metric")
    assert [row[:4] for row in rows] == [
        ["tense", "last, l0", "0.95", "0.8550"],
        ["", "", "0.97", "0.8730"],
        ["", "", "0.99", "0.8910"],
        ["tense", "bermo, l0", "0.95", "0.8550"],
        ["", "", "0.97", "0.8730"],
        ["", "", "0.99", "0.8910"],
    ]
    # Each seed's sparsest point meets 0.97 of 0.9: 40 and 44 % against 20 and 22 %.
    for row in (rows[0], rows[1], rows[3], rows[4]):
        assert row[4].startswith("2.00 (")
        assert row[5:] == ["2", "0 / 0"]
    # Beyond the pruned point both go to all weights on a line, on which the ratio is less.
    ratio = float(rows[2][4].partition(" ")[0])
    share = (0.891 - 0.88) / (0.9 - 0.88)
    assert ratio == pytest.approx(2 ** (1 - share), abs=0.005)


def test_hypervolumes_and_metrics_stand_side_by_side(page: Page) -> None:
    volumes = rows_of(page, "Hypervolume")
    # (0.88 − 0.5)/(0.9 − 0.5) from 40 and 44 % on, of log 100: of pruned trials alone.
    assert [row[1] for row in volumes] == ["last, l0", "bermo, l0"]
    assert volumes[0][2].startswith("0.179 ± ")
    assert volumes[0][3].startswith("0.322 ± ")
    metrics = rows_of(page, "Metric")
    assert [row[1] for row in metrics] == ["last, dense", "last, l0", "bermo, dense", "bermo, l0"]
    assert metrics[1][2:] == ["88.00", "88.00", "+0.00 (0.00 to 0.00)", "2"]


def test_both_frontiers_are_in_one_figure(page: Page) -> None:
    (drawing,) = page.drawings
    assert drawing.figure is not None
    legend = drawing.figure.axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    arms = [f"{study}: {fusion}" for study in ("one", "two") for fusion in ("last", "bermo")]
    assert [label for label in labels if "mean of 2 seeds" in label] == [
        f"{arm}, mean of 2 seeds ± 95 %" for arm in arms
    ]
    assert len(drawing.points) == 16
    assert "<script>alert" not in render_page(page)


def test_verdicts_and_settings_stand_side_by_side(page: Page) -> None:
    assert rows_of(page, "Verdicts") == [
        ["a claim (a paper)", *["contradicts: 0.80× (0.60 to 0.90)"] * 2]
    ]
    (section,) = (section for section in page.sections if section.title == "What differs")
    assert section.blocks == [
        Paragraphs(["Both studies were started with the same settings and the same code."])
    ]


def test_what_cannot_be_compared_is_said(
    records: tuple[StudyRecord, StudyRecord], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="second: got 'one', the same study as the first"):
        compare_studies(records[0], records[0], UI)
    write_frontier_study(tmp_path, "other", (0.4, 0.2), task="bigram_shift")
    page = compare_studies(records[0], read_record("other", store_uri(tmp_path)), UI)
    titles = [section.title for section in page.sections]
    assert titles == ["What differs", "Metric", "Verdicts"]
    (line,) = page.sections[1].blocks
    assert isinstance(line, Paragraphs)
    assert re.search("no task, encoder and fusion in common", line.lines[0])


def test_only_seeds_in_common_are_compared(records: tuple[StudyRecord, StudyRecord]) -> None:
    first, second = records
    seeds = pa.array(second.table["seed"].to_pylist())
    one_seed = dataclasses.replace(second, table=second.table.filter(pc.equal(seeds, 0)))
    page = compare_studies(first, one_seed, UI)
    assert [row[-2:] for row in rows_of(page, "Metric")] == [["+0.00 (one seed)", "1"]] * 4
    (section,) = (s for s in page.sections if s.title == "Weights at the same metric")
    (reasons,) = section.blocks
    assert isinstance(reasons, Paragraphs)
    assert reasons.lines[0] == (
        "tense, last, l0: no comparison: seeds: one seed gives no interval; give two or more"
    )
    renumbered = second.table.set_column(
        second.table.schema.get_field_index("seed"), "seed", pc.multiply(seeds, 2)
    )  # 0 and 2, and 18 of the failed trial
    page = compare_studies(first, dataclasses.replace(second, table=renumbered), UI)
    assert [row[-1] for row in rows_of(page, "Metric")] == ["1"] * 4
