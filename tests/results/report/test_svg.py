import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from bermo_ray.results.figures import draw_svg
from bermo_ray.results.report.blocks import Point
from bermo_ray.results.report.svg import inline_svg


@pytest.fixture(scope="module")
def svg() -> str:
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    points = axes.scatter([1, 2], [1, 2])
    points.set_urls(["trial:a", "trial:b"])
    return draw_svg(figure)


def test_ids_have_the_prefix_and_every_reference_leads_to_one(svg: str) -> None:
    text = inline_svg(svg, "f3-", "a caption")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 10
    assert all(name.startswith("f3-") for name in ids)
    references = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert references
    assert set(references) <= set(ids)


def test_the_width_follows_the_page_and_the_caption_is_read_aloud(svg: str) -> None:
    root = ElementTree.fromstring(inline_svg(svg, "f", "a <caption>"))
    assert root.get("aria-label") == "a <caption>"
    assert root.get("width") is None
    assert root.get("viewBox") == "0 0 288 216"
    assert "max-width:384px" in str(root.get("style"))  # 288 pt at 0.75 pt per pixel


def test_a_point_tells_of_itself_and_leads_to_its_run(svg: str) -> None:
    point = Point('trial "a" <1>', "http://127.0.0.1:5000/#/runs/a")
    root = ElementTree.fromstring(inline_svg(svg, "f", "c", {"trial:a": point}))
    first, second = root.iter("{http://www.w3.org/2000/svg}a")
    assert first.get("href") == point.url
    assert first.get("class") == "point"
    assert first[0].tag.endswith("}title")
    assert first[0].text == point.text
    assert dict(second.attrib) == {}  # a trial of which nothing is told leads nowhere
    assert "trial:" not in ElementTree.tostring(root, encoding="unicode").replace(point.text, "")


def test_nothing_active_comes_through() -> None:
    hostile = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'width="10pt" onload="alert(1)"><script>alert(2)</script>'
        '<foreignObject><p>x</p></foreignObject><a xlink:href="javascript:alert(3)"><path/></a>'
        '<image href="http://elsewhere/x.png"/><image href="data:image/png;base64,AA=="/>'
        '<use xlink:href="#x"/></svg>'
    )
    text = inline_svg(hostile, "f", "c")
    for word in ("alert", "script", "foreignObject", "elsewhere", "onload"):
        assert word not in text
    assert "data:image/png;base64,AA==" in text
    assert '"#fx"' in text
