"""What holds for every page: it needs nothing from outside, nothing of a host's could run, and it fits the screen."""

import re
from html import unescape
from itertools import product

import pytest
from lxml import html

from tests.browser import crowded
from tests.render.pages import PAGES
from tests.shared import sampled

WORDY = "return [...document.querySelectorAll('td.wordy')].map(cell => cell.offsetWidth)"
TALL = "return [...document.querySelectorAll('table.roomy tr')].every(row => row.offsetHeight < 200)"


@pytest.mark.parametrize("name", PAGES)
def test_page_needs_nothing_from_outside(name):
    page = PAGES[name]
    tree = html.fromstring(page)

    assert "default-src 'none'" in unescape(page)
    assert "unsafe-inline" not in page
    assert not tree.xpath("//*[@src or @style or @*[starts-with(name(), 'on')]]")
    assert all(link.get("href").startswith("#") for link in tree.xpath("//*[@href]"))
    assert not re.search(r"url\(|@import", "".join(tree.xpath("//style/text()")))


@pytest.mark.parametrize("name", PAGES)
def test_no_host_string_is_markup(name):
    tree = html.fromstring(PAGES[name])

    assert not tree.xpath("//img")
    assert len(tree.xpath("//script")) == 2
    assert not re.search("[\x1b\u202e]", PAGES[name])


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "width"),
    sampled(product(PAGES, (1280, 390)), lambda _, row: row[1] == 390 or row[0] in ("report-sick", "fleet")),
)
def test_page_fits_the_screen_and_the_browser_refuses_and_fetches_nothing(show, name, width):
    page = show(PAGES[name], width)

    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert not page.get_log("browser")
    assert crowded(page, ".predicted-where, .predicted-numbers") == []
    # No column of words is squeezed until they break letter by letter.
    assert all(cell > 120 for cell in page.execute_script(WORDY))
    assert "hostile" in name or page.execute_script(TALL)
