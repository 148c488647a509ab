"""A headless Chromium of the system's packages, for tests that look at pages as a person does.

It waits for what a page shows, never for seconds. A page of our own is opened in the same way:
``browser.open((folder / "report.html").as_uri())``, then ``browser.hover("circle")`` and
``browser.wait_for_text("λ=10")``.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.system_packages import install_programs

DEADLINE_SECONDS = 90  # of a page that loads on a busy machine
_PACKAGES = {"chromium": "chromium", "chromedriver": "chromium-driver"}
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Where set, every screenshot of the tests is kept in this folder, to be looked at.
SCREENSHOTS_VARIABLE = "BERMO_SCREENSHOTS"


def find_programs() -> tuple[str, str] | None:
    """Chromium and its driver; None where one of them is not installed."""
    chromium = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    driver = shutil.which("chromedriver")
    return (chromium, driver) if chromium and driver else None


class Browser:
    """A window of a browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Opens a page, afresh even where it differs from the one shown in its fragment alone."""
        self.driver.get("about:blank")
        self.driver.get(address)

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        """Waits until the condition gives something true, and gives that.

        Args:
            condition: Asked again and again; elements that a page has redrawn meanwhile are no
                error.
            what: What is waited for, for the message of a test that fails.
        """
        from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(
            self.driver,
            DEADLINE_SECONDS,
            poll_frequency=0.2,
            ignored_exceptions=[StaleElementReferenceException],
        )
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            self.take_screenshot("timeout")
            pytest.fail(f"the page does not show {what}; it shows:\n{self.text[:3000]}")

    @property
    def text(self) -> str:
        """What the page shows, as text."""
        return str(self.driver.execute_script("return document.body.innerText") or "")

    def wait_for_text(self, *texts: str) -> None:
        """Waits until the page shows all of these."""
        for text in texts:
            self.wait_until(lambda text=text: text in self.text, repr(text))

    def find_all(self, selector: str) -> list[Any]:
        """The elements that a CSS selector matches."""
        return list(self.driver.find_elements("css selector", selector))

    def wait_for(self, selector: str) -> Any:
        """The first element that a CSS selector matches, once there is one."""
        return self.wait_until(lambda: next(iter(self.find_all(selector)), None), selector)

    def click(self, element: Any) -> None:
        """Clicks an element, even where another one lies over it."""
        self.driver.execute_script("arguments[0].click()", element)

    def hover(self, selector: str) -> None:
        """Moves the mouse over the first element that a CSS selector matches."""
        from selenium.webdriver import ActionChains

        element = self.wait_for(selector)
        ActionChains(self.driver).move_to_element(element).perform()

    def wait_for_image(self, selector: str) -> tuple[int, int]:
        """Waits until an image has been loaded; its width and height in pixels."""
        script = "const i = arguments[0]; return i.complete ? [i.naturalWidth, i.naturalHeight] : 0"
        image = self.wait_for(selector)
        size = self.wait_until(lambda: self.driver.execute_script(script, image), selector)
        return int(size[0]), int(size[1])

    def take_screenshot(self, name: str) -> None:
        """Keeps what the window shows, where a folder for it is named in the environment."""
        if folder := os.environ.get(SCREENSHOTS_VARIABLE):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@contextmanager
def open_browser(width: int = 1500, height: int = 1000) -> Iterator[Browser]:
    """A browser with a profile of its own; the test is skipped where there is no Chromium, and none
    can be installed."""
    if find_programs() is None:
        install_programs(_PACKAGES)
    programs = find_programs()
    assert programs is not None
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    # In a container there is neither a sandbox for a root user nor much shared memory.
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu",
                     f"window-size={width},{height}", "lang=en"):  # fmt: skip
        options.add_argument(f"--{argument}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(programs[1]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
