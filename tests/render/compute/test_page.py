"""The section of a load in a real browser: drawn in color, and no wider than screen and paper."""

import msgspec
import pytest

from gpucheck.render.chart import DARK, LIGHT
from gpucheck.render.report.html import to_html
from tests.browser import find, screen, whole_screen
from tests.render.compute.test_traces import gpu
from tests.render.reports import passed, report

pytestmark = pytest.mark.browser
STROKE = "return getComputedStyle(document.querySelector('#compute polyline')).stroke"


def rgb(color):
    return "rgb({}, {}, {})".format(*(int(color[n : n + 2], 16) for n in (1, 3, 5)))


@pytest.fixture
def page(browser, tmp_path):
    gpus = msgspec.to_builtins([gpu(n, 60.0 + n) for n in range(8)])
    path = tmp_path / "page.html"
    path.write_text(to_html(report(passed(), measurements={"compute": {"gpus": gpus}})), encoding="utf-8")
    browser.get(path.as_uri())
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    whole_screen(browser)


def test_lines_have_the_colors_of_the_theme_and_the_browser_refuses_nothing(page):
    page.execute_script("document.documentElement.dataset.theme = 'light'")
    light = page.execute_script(STROKE)
    page.execute_script("document.documentElement.dataset.theme = 'dark'")
    dark = page.execute_script(STROKE)

    assert light in [*map(rgb, LIGHT), rgb("#8a94a3")]
    assert dark in [*map(rgb, DARK), rgb("#6b7788")]
    assert not page.get_log("browser")


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (390, "screen"), (794, "print")])
def test_the_page_is_as_wide_as_screen_and_paper(page, width, media):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    screen(page, width)
    drawing = find(page, "#compute .chart svg")

    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert media != "print" or drawing.rect["x"] + drawing.rect["width"] <= width
