"""Figures as SVG within a page: unique ids, no script, points that tell of themselves."""

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from bermo_ray.results.report.blocks import Point

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_HREF = f"{{{_XLINK}}}href"
# What a figure has no use for: a file from a shared store may come from anybody.
_ACTIVE_ELEMENTS = {"script", "foreignObject", "iframe", "metadata", "style", "animate", "set"}
_DEFAULT_STYLE = "stroke-linejoin:round;stroke-linecap:butt"  # matplotlib sets it for all elements
_POINTS_PER_PIXEL = 0.75


def inline_svg(
    text: str, prefix: str, caption: str, points: Mapping[str, Point] | None = None
) -> str:
    """An SVG file's text as an element of a page.

    Args:
        text: Of the file.
        prefix: Put before every id, so that figures of a page do not share any.
        caption: What a screen reader says.
        points: By the address that an ``<a>`` of the figure has: what is told of it when pointed
            at, and where it leads.
    """
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(text)
    _remove_active_content(root)
    for element in root.iter():
        _remove_blanks(element)
        _prefix_ids(element, prefix)
        address = element.get(_HREF, "")
        if element.tag == f"{{{_SVG}}}a":
            _make_point(element, (points or {}).get(address))
    width = float(re.sub(r"[a-z]+$", "", root.attrib.pop("width", "480")))
    root.attrib.pop("height", None)
    root.set("style", f"{_DEFAULT_STYLE};max-width:{width / _POINTS_PER_PIXEL:.0f}px")
    root.set("role", "group" if points else "img")
    root.set("aria-label", caption)
    return ElementTree.tostring(root, encoding="unicode")


def _remove_active_content(root: ElementTree.Element) -> None:
    for parent in list(root.iter()):
        for child in list(parent):
            if _local_name(child.tag) in _ACTIVE_ELEMENTS:
                parent.remove(child)
        for name, value in list(parent.attrib.items()):
            is_address = _local_name(name) == "href" and not value.startswith(("#", "trial:"))
            is_image = value.startswith("data:image/png;base64,")
            if _local_name(name).startswith("on") or (is_address and not is_image):
                del parent.attrib[name]


def _remove_blanks(element: ElementTree.Element) -> None:
    """Indentation is a good part of a large figure."""
    if not (element.text or "").strip():
        element.text = None
    if not (element.tail or "").strip():
        element.tail = None


def _local_name(tag: object) -> str:
    return str(tag).rpartition("}")[2]


def _prefix_ids(element: ElementTree.Element, prefix: str) -> None:
    for name, value in _attributes(element):
        if name == "id":
            element.set(name, prefix + value)
        elif _local_name(name) == "href" and value.startswith("#"):
            element.set(name, f"#{prefix}{value[1:]}")
        elif "url(#" in value:
            element.set(name, value.replace("url(#", f"url(#{prefix}"))


def _attributes(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    yield from list(element.attrib.items())


def _make_point(element: ElementTree.Element, point: Point | None) -> None:
    element.attrib.clear()
    if point is None:
        return
    element.attrib |= {
        "href": point.url,
        "class": "point",
        "target": "_blank",
        "rel": "noopener",
    }
    title = ElementTree.Element(f"{{{_SVG}}}title")
    title.text = point.text
    element.insert(0, title)
