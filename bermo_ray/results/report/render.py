"""Pages as HTML: one file with its style, script and figures in it."""

import html
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from bermo_ray.errors import UserError
from bermo_ray.results.figures import draw_svg, save_figure
from bermo_ray.results.report.blocks import Drawing, Page
from bermo_ray.results.report.svg import inline_svg


def render_page(page: Page) -> str:
    """The text of the page's HTML file. All that is not a figure is escaped."""
    svgs = {
        id(drawing): _draw(drawing, f"f{number}-") for number, drawing in enumerate(page.drawings)
    }
    return _template().render(page=page, svg_of=lambda drawing: svgs[id(drawing)])


def _draw(drawing: Drawing, prefix: str) -> str:
    text = drawing.svg if drawing.figure is None else draw_svg(drawing.figure)
    return inline_svg(text, prefix, drawing.caption, drawing.points)


def write_page(page: Page, file: Path) -> Path:
    """Writes the page's HTML file at once: under another name first, so that none is left
    half-written.

    Raises:
        UserError: it can't be written there.
    """
    text = render_page(page)
    partial_file = file.with_name(file.name + ".partial")
    try:
        partial_file.write_text(text, encoding="utf-8")
        partial_file.replace(file)
    except OSError as error:
        partial_file.unlink(missing_ok=True)
        raise UserError(f"out: can't write {file}: {error.strerror}") from None
    return file


def save_drawings(page: Page, folder: Path) -> list[Path]:
    """Writes the figures that a page has drawn as PNG and SVG; gives the PNG files.

    Raises:
        UserError: they can't be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            save_figure(drawing.figure, folder / f"{drawing.name}.png")
            for drawing in page.drawings
            if drawing.figure is not None
        ]
    except OSError as error:
        raise UserError(f"figures: can't write in {folder}: {error.strerror}") from None


def _mark_code(text: str) -> str:
    """Escaped text in which what stands in backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("bermo_ray.results.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["mark_code"] = _mark_code
    return environment.get_template("page.html")
