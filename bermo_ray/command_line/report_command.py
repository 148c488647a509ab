"""``bermo-ray report``: a study's report, made again from its store."""

from pathlib import Path
from typing import Annotated

import tyro

from bermo_ray.command_line.existing_store import existing_store
from bermo_ray.errors import UserError
from bermo_ray.tracking.store import RUNS


def report(
    study: Annotated[str, tyro.conf.Positional],
    runs: Path = Path(RUNS),
    tracking_uri: str | None = None,
    out: Path | None = None,
    figures: Path | None = None,
    ui_url: str | None = None,
) -> None:
    """Write a study's report as one HTML file that opens without a network.

    Args:
        study: Name of the study.
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in --runs.
        out: File to write, ending in .html; by default report.html in the study's folder.
        figures: Folder to write the report's figures to, as PNG and SVG.
        ui_url: Where links to runs lead; by default http://127.0.0.1:5000, where `bermo-ray ui`
            serves, or the server of --tracking-uri.
    """
    from bermo_ray.results.report import REPORT_FILE, save_drawings, write_report

    check_html_name(out)
    uri = existing_store(runs, tracking_uri)
    folder = runs.expanduser() / study
    file = out or (folder / REPORT_FILE if folder.is_dir() else Path(f"{study}-{REPORT_FILE}"))
    page = write_report(study, uri, file, ui_url)
    print(f"report   {file}")
    if figures is not None:
        print(f"figures  {figures}/ ({len(save_drawings(page, figures))}, as PNG and SVG)")


def check_html_name(out: Path | None) -> None:
    """Refuses a file that a browser would not open as a page.

    Raises:
        UserError: the name does not end in .html.
    """
    if out is not None and out.suffix != ".html":
        raise UserError(f"out: got {out.name}, expected a name ending in .html")
