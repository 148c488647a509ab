"""``bermo-ray compare``: two studies side by side, in the terminal and as a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bermo_ray.command_line.existing_store import existing_store
from bermo_ray.command_line.report_command import check_html_name
from bermo_ray.tracking.store import RUNS

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from bermo_ray.results.report.blocks import DataTable, Page


def compare(
    first: Annotated[str, tyro.conf.Positional],
    second: Annotated[str, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    out: Path | None = None,
    figures: Path | None = None,
    ui_url: str | None = None,
) -> None:
    """Print two studies side by side: settings, frontiers, weights at the same metric, verdicts.

    Args:
        first: Name of the study that is compared with.
        second: Name of the study that is compared.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        out: File to write too, ending in .html: the same with both frontiers drawn.
        figures: Folder to write the figures to, as PNG and SVG.
        ui_url: Where links to runs lead; by default http://127.0.0.1:5000, where `bermo-ray ui`
            serves, or the server of --tracking-uri.
    """
    from rich.console import Console

    from bermo_ray.results.report import (
        compare_studies,
        find_ui,
        read_record,
        save_drawings,
        write_page,
    )

    check_html_name(out)
    uri = existing_store(runs, tracking_uri)
    records = [read_record(study, uri) for study in dict.fromkeys((first, second))]
    page = compare_studies(records[0], records[-1], find_ui(uri, ui_url))
    print_page(page, Console(highlight=False))
    if out is not None:
        print(f"report   {write_page(page, out)}")
    if figures is not None:
        print(f"figures  {figures}/ ({len(save_drawings(page, figures))}, as PNG and SVG)")


def print_page(page: "Page", console: "Console") -> None:
    """Prints the text and the tables of a page; sections with figures are left out."""
    from bermo_ray.results.report.blocks import DataTable, Drawing, Paragraphs

    console.print(page.title, style="bold", markup=False)
    console.print(page.subtitle, markup=False)
    for section in page.sections:
        if any(isinstance(block, Drawing) for block in section.blocks):
            continue
        console.print(f"\n{section.title}", style="bold", markup=False)
        for block in section.blocks:
            if isinstance(block, Paragraphs):
                console.print("\n".join(block.lines), markup=False)
            elif isinstance(block, DataTable):
                print_table(block, console)


def print_table(table: "DataTable", console: "Console") -> None:
    """Prints a table without rules, as the others of ``bermo-ray``."""
    from rich.table import Table
    from rich.text import Text

    if table.title:
        console.print(table.title, markup=False)
    view = Table(box=None, padding=(0, 1), pad_edge=False)
    is_number = table.is_number or [False] * len(table.columns)
    for head, to_the_right in zip(table.columns, is_number, strict=True):
        justify: JustifyMethod = "right" if to_the_right else "left"
        view.add_column(Text(head), justify=justify, overflow="fold", no_wrap=to_the_right)
    for row in table.rows:
        view.add_row(*(Text(cell if isinstance(cell, str) else cell.text) for cell in row))
    console.print(view)
