"""The section of a load in a real browser: drawn in color, and no wider than paper."""

import re

import pytest

from gpucheck.render.html import PAGES as FILES
from tests.browser import find
from tests.render.pages import PAGES

pytestmark = pytest.mark.browser
LINES = re.findall(r"light-dark\((#\w+), (#\w+)\)", (FILES / "chart.css").read_text(encoding="utf-8"))
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

    assert light in [rgb(color) for color, _ in LINES]
    assert dark in [rgb(color) for _, color in LINES]


def test_the_drawing_is_as_wide_as_paper(show):
    page = show(PAGES["load"], PAPER)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    drawing = find(page, "#compute .chart svg")

    assert page.execute_script("return document.documentElement.scrollWidth") <= PAPER
    assert drawing.rect["x"] + drawing.rect["width"] <= PAPER
