"""The browser that the pages are looked at with."""

import pytest

from tests.browser import screen, started, whole_screen


@pytest.fixture(scope="module")
def browser():
    """One browser a test module."""
    browser = started()
    yield browser
    browser.quit()


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

    yield show
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    whole_screen(browser)
