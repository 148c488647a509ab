"""A study's report as a person sees it: from its file, without a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, open_browser
from tests.support.frontier_session import run_frontier_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser(1200, 1000) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = run_frontier_study(tmp_path_factory.mktemp("runs"), "small-bert")
    return study.folder / "report.html"


def test_a_point_tells_of_its_trial(browser: Browser, report: Path) -> None:
    browser.open(report.as_uri())
    browser.wait_for_text("Verdict", "Frontier", "How to reproduce")
    browser.hover("a.point")
    told = browser.wait_until(
        lambda: [tip.text for tip in browser.find_all("#tooltip:not([hidden])")], "a tooltip"
    )[0]
    browser.take_screenshot("report")
    assert "λ" in told
    assert "seed" in told
    assert "accuracy" in told
    (link, *_) = browser.find_all("a.point")
    assert "#/runs/" in str(link.get_dom_attribute("xlink:href") or link.get_dom_attribute("href"))


def test_nothing_is_fetched_from_elsewhere(browser: Browser, report: Path) -> None:
    browser.open(report.as_uri())
    browser.wait_for_text("Frontier")
    script = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert browser.driver.execute_script(script) == []
    for width in (400, 1200):
        browser.driver.set_window_size(width, 900)
        browser.take_screenshot(f"report-{width}")
        size = "return [document.documentElement.scrollWidth, window.innerWidth]"
        page, window = browser.driver.execute_script(size)
        assert page <= window  # no scrolling to the side
