"""A diagnosis as a page and as Markdown: nothing from outside, everything without scripts, and readable anywhere."""

import re
from html import unescape

import pytest
from lxml import html
from msgspec.structs import replace

from gpucheck.model import Verdict, worst
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.render.diagnosis import to_html, to_markdown
from tests.browser import all_of, count, crowded, find, screen, whole_screen
from tests.render.hostile import hostile
from tests.render.judgements import ALL, winner

WIDTHS = (1280, 390)


def diagnosis(judgement):
    verdicts = [one.verdict for one in judgement.findings]
    return Diagnosis(
        verdict=worst(verdicts),
        source=("machine.yml",),
        gpus=len(judgement.gpus),
        findings=judgement.findings,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        ranking=judgement.ranking,
        gpu_names=judgement.gpus,
        decided=judgement.decided,
    )


PAGES = {name: diagnosis(make()) for name, make in ALL.items()} | {"hostile": hostile(Diagnosis)}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_needs_nothing_from_outside(name):
    page = to_html(PAGES[name])
    tree = html.fromstring(page)

    assert "default-src 'none'" in unescape(page)
    assert "unsafe-inline" not in page
    assert not tree.xpath("//*[@src or @style or @*[starts-with(name(), 'on')]]")
    assert not tree.xpath("//img")
    assert len(tree.xpath("//script")) == 2


def test_every_chart_row_says_its_numbers_without_looking():
    tree = html.fromstring(to_html(PAGES["winner"]))
    labels = tree.xpath("//svg[@role='img']/@aria-label")

    assert "all pairs with GPU 3: predicted 12.0 to 12.8 GB/s, measured 12.1 to 12.6 GB/s, fits" in labels
    assert any(label.endswith("higher than predicted") for label in labels)
    assert len(labels) == 2 * 2 + 2 * 4


def test_the_page_of_72_gpus_stays_small():
    assert len(to_html(PAGES["rack"])) < 100_000


def test_a_diagnosis_without_a_ranking_is_findings_only():
    page = to_html(replace(PAGES["winner"], ranking=(), decided=""))

    assert 'id="ranking"' not in page
    assert "pcie-width-reduced" in page


def test_markdown_has_findings_ranking_and_predictions():
    text = to_markdown(PAGES["winner"])

    assert "- cause: pcie-width-reduced (92 %)" in text
    assert "- or: uplink-downgraded (6 %): lspci" in text
    assert "| 92 % | the PCIe link of GPU 3 has 8 of 16 lanes | pcie-width-reduced: GPU 3 (0000:13:00.0) |" in text
    assert "| all pairs with GPU 3 | 12.0 to 12.8 | 12.1 to 12.6 | yes |" in text


def test_hostile_words_are_no_markdown():
    text = to_markdown(PAGES["hostile"])

    assert not re.search(r"(?<!\\)[<`]", text)
    assert all(line.startswith(("|---", "| ", "|--")) for line in text.split("\n") if line.startswith("|"))


@pytest.fixture
def open_page(browser, tmp_path):
    def opened(name, width=1280, text=None):
        path = tmp_path / f"{name}.html"
        path.write_text(text or to_html(PAGES[name]), encoding="utf-8")
        screen(browser, width)
        browser.get("about:blank")
        browser.get(path.as_uri())
        return browser

    yield opened
    whole_screen(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_the_screen_or_refused(open_page, name, width):
    page = open_page(name, width)

    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert not page.get_log("browser")
    assert crowded(page, ".predicted-where, .predicted-numbers") == []


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_marks_stand_where_the_axis_says(open_page, width):
    """12.4 GB/s is halfway from 0 to 24.8, on the left of all marks of the other row."""
    page = open_page("winner", width)
    fast, slow = (
        [mark.rect["x"] for mark in all_of(row, ".inside")] for row in all_of(page, "#explanation-1 .predicted-row")[:2]
    )
    labels = {text.text: text.rect for text in all_of(page, "#explanation-1 .predicted-axis text")[:6]}

    assert labels["10"]["x"] < min(slow) <= max(slow) < labels["15"]["x"]
    assert max(slow) < min(fast)
    assert labels["20"]["x"] < min(fast) <= max(fast) < labels["25"]["x"] + 40


@pytest.mark.browser
def test_a_value_far_outside_differs_by_shape_and_colour(open_page):
    page = open_page("winner")

    assert count(page, "#explanation-1 figure .far") == 0
    assert count(page, "#explanation-2 figure circle.far") > 10
    assert "higher than predicted" in find(page, "#explanation-2 .bad").text


@pytest.mark.browser
def test_dark_changes_the_chart_too(open_page, browser):
    colour = "return getComputedStyle(document.querySelector('rect.range')).fill"
    fills = []
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        fills.append(open_page("winner").execute_script(colour))

    assert len(set(fills)) == 2


@pytest.mark.browser
def test_the_page_is_whole_without_scripts(open_page):
    text = re.sub(r"<script>.*?</script>", "", to_html(diagnosis(winner())), flags=re.S)
    page = open_page("plain", text=text)

    assert "pcie-width-reduced (92 %)" in find(page, "#findings").text
    assert find(page, "#explanation-2 .predicted-chart").is_displayed()
    assert not find(page, "#theme").is_displayed()
