"""The report of one study: its page, from the store alone."""

from collections.abc import Sequence
from pathlib import Path

from bermo_ray.results.arm_text import format_interval
from bermo_ray.results.report.blocks import Block, DataTable, Drawing, Page, Paragraphs, Section
from bermo_ray.results.report.blocks import Verdicts as VerdictCards
from bermo_ray.results.report.drawings import intervals_figure
from bermo_ray.results.report.record import StudyRecord, read_record
from bermo_ray.results.report.render import write_page
from bermo_ray.results.report.reproduce import reproduce_section
from bermo_ray.results.report.sections import (
    frontier_section,
    layers_section,
    mixing_section,
    sparsity_section,
)
from bermo_ray.results.report.training_section import training_section
from bermo_ray.results.report.trial_text import count_statuses, failures_section, trials_section
from bermo_ray.results.verdicts import Verdict

REPORT_FILE = "report.html"
FIGURE_FOLDER = "report_figures"  # in the study's folder, and among the artifacts of its run
UI_URL = "http://127.0.0.1:5000"  # where `bermo-ray ui` serves if no other port is given


def write_report(study: str, uri: str, file: Path, ui_url: str | None = None) -> Page:
    """Writes a study's report as one HTML file; gives its page.

    Args:
        study: Name of the study.
        uri: Of its store.
        file: What is written; it is replaced at once, so that none is left half-written.
        ui_url: Where the MLflow UI serves that links to runs lead to; a store that is a server has
            its own.

    Raises:
        UserError: no such study, or none of its trials has finished.
    """
    page = make_report(read_record(study, uri), find_ui(uri, ui_url))
    write_page(page, file)
    return page


def find_ui(uri: str, asked: str | None = None) -> str:
    """Where the MLflow UI of a store serves: as asked, the store itself if that is a server, or
    where `bermo-ray ui` does."""
    is_server = uri.startswith(("http://", "https://"))
    return asked or (uri if is_server else UI_URL)


def make_report(record: StudyRecord, ui_url: str = UI_URL) -> Page:
    """The page of a study's report. Sections that the study has no data for are left out.

    Args:
        record: Of the study.
        ui_url: Where the MLflow UI serves that links to runs lead to.
    """
    frontiers = frontier_section(record, ui_url)
    sections = [
        Section("", [Paragraphs(record.text.paragraphs)] if record.text.paragraphs else []),
        verdict_section(record.verdicts),
        frontiers,
        intervals_section(record.verdicts),
        printed_section(record),
        figures_section(record, frontiers),
        mixing_section(record),
        sparsity_section(record),
        training_section(record),
        layers_section(record),
        failures_section(record, ui_url),
        trials_section(record, ui_url),
        reproduce_section(record),
    ]
    started = min(record.table["started"].to_pylist())
    subtitle = f"Study {record.name}, {started:%d %B %Y}: {count_statuses(record.table)}"
    title = record.text.title or f"Study {record.name}"
    return Page(title, subtitle, [section for section in sections if section.blocks])


def verdict_section(verdicts: Sequence[Verdict]) -> Section:
    """What came of the papers' claims."""
    cards = []
    for verdict in verdicts:
        paper, ours = format_interval(verdict)
        says = f"{verdict.source}: {verdict.claim}" + (f" ({paper})" if paper else "")
        cards.append(
            {
                "outcome": str(verdict.outcome),
                "sentence": verdict.sentence.removesuffix(f": {verdict.outcome}"),
                "paper": says,
                "number": ours,
            }
        )
    return Section("Verdict", [VerdictCards(cards)] if cards else [])


def intervals_section(verdicts: Sequence[Verdict]) -> Section:
    """The estimates behind the verdicts, drawn."""
    figure = intervals_figure(verdicts)
    caption = (
        "Dots: our estimates, with their 95 % intervals where there are several seeds. "
        "Open diamonds: the papers' numbers. Dashes: what claims are weighed against, such as no "
        "effect."
    )
    drawings = [] if figure is None else [Drawing("intervals", caption, figure)]
    return Section("Intervals", drawings)


def printed_section(record: StudyRecord) -> Section:
    """The tables and lines that the study's script printed, the papers' numbers among them."""
    blocks: list[Block] = []
    lines: list[str] = []
    for item in record.text.printed:
        if isinstance(item, DataTable):
            blocks += [Paragraphs(lines)] if lines else []
            lines = []
            blocks.append(item)
        else:
            lines.append(item)
    return Section("Results", [*blocks, *([Paragraphs(lines)] if lines else [])])


def figures_section(record: StudyRecord, drawn: Section) -> Section:
    """The figures of the study's own, but for a frontier that the report has ``drawn`` already."""
    names = {drawing.name for drawing in drawn.blocks if isinstance(drawing, Drawing)}
    drawings = [
        Drawing(name, name.replace("_", " "), svg=svg)
        for name, svg in record.figures.items()
        if name not in names
    ]
    return Section("Figures", drawings)
