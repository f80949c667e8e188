"""The browser that the pages are looked at with."""

import pytest

from tests.browser import screen, started, whole_screen


@pytest.fixture(scope="session")
def chromium():
    """One browser a test process."""
    browser = started()
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium):
    """The browser; what a test made of its screen and its messages is gone with the test."""
    yield chromium
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    whole_screen(chromium)
    chromium.get_log("browser")


@pytest.fixture
def show(browser, tmp_path):
    """Open a page, by its text, on a screen of this width."""
    path = tmp_path / "page.html"

    def show(text, width=1280):
        path.write_text(text, encoding="utf-8")
        screen(browser, width)
        browser.get("about:blank")
        browser.get(path.as_uri())
        return browser

    return show
