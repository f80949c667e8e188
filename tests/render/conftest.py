"""The browser that the pages are looked at with."""

import pytest

from tests.browser import started


@pytest.fixture(scope="module")
def browser():
    """One browser a test module."""
    browser = started()
    yield browser
    browser.quit()
