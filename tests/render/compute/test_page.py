"""The section of a load in a real browser: drawn in color, and no wider than paper."""

import pytest

from gpucheck.render.chart import DARK, LIGHT
from tests.browser import find
from tests.render.pages import PAGES

pytestmark = pytest.mark.browser
PAPER = 794  # CSS pixels of A4
STROKE = "return getComputedStyle(document.querySelector('#compute polyline')).stroke"


def rgb(color):
    return "rgb({}, {}, {})".format(*(int(color[n : n + 2], 16) for n in (1, 3, 5)))


def test_lines_have_the_colors_of_the_theme(show):
    page = show(PAGES["load"])
    page.execute_script("document.documentElement.dataset.theme = 'light'")
    light = page.execute_script(STROKE)
    page.execute_script("document.documentElement.dataset.theme = 'dark'")
    dark = page.execute_script(STROKE)

    assert light in [*map(rgb, LIGHT), rgb("#8a94a3")]
    assert dark in [*map(rgb, DARK), rgb("#6b7788")]


def test_the_drawing_is_as_wide_as_paper(show):
    page = show(PAGES["load"], PAPER)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    drawing = find(page, "#compute .chart svg")

    assert page.execute_script("return document.documentElement.scrollWidth") <= PAPER
    assert drawing.rect["x"] + drawing.rect["width"] <= PAPER
