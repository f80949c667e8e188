"""A diagnosis as a page and as Markdown: nothing from outside, everything without scripts, and readable anywhere."""

import re

import pytest
from lxml import html
from msgspec.structs import replace

from gpucheck.render.diagnosis import to_html, to_markdown
from tests.browser import all_of, count, find
from tests.render.pages import DIAGNOSES, PAGES, without_scripts

WIDTHS = (1280, 390)


def test_every_chart_row_says_its_numbers_without_looking():
    tree = html.fromstring(PAGES["diagnosis-winner"])
    labels = tree.xpath("//svg[@role='img']/@aria-label")

    assert "all pairs with GPU 3: predicted 12.0 to 12.8 GB/s, measured 12.1 to 12.6 GB/s, fits" in labels
    assert any(label.endswith("higher than predicted") for label in labels)
    assert len(labels) == 2 * 2 + 2 * 4


def test_the_page_of_72_gpus_stays_small():
    assert len(PAGES["diagnosis-rack"]) < 100_000


def test_a_diagnosis_without_a_ranking_is_findings_only():
    page = to_html(replace(DIAGNOSES["winner"], ranking=(), decided=""))

    assert 'id="ranking"' not in page
    assert "pcie-width-reduced" in page


def test_markdown_has_findings_ranking_and_predictions():
    text = to_markdown(DIAGNOSES["winner"])

    assert "- cause: pcie-width-reduced (92 %)" in text
    assert "- or: uplink-downgraded (6 %): lspci" in text
    assert "| 92 % | the PCIe link of GPU 3 has 8 of 16 lanes | pcie-width-reduced: GPU 3 (0000:13:00.0) |" in text
    assert "| all pairs with GPU 3 | 12.0 to 12.8 | 12.1 to 12.6 | yes |" in text


def test_hostile_words_are_no_markdown():
    text = to_markdown(DIAGNOSES["hostile"])

    assert not re.search(r"(?<!\\)[<`]", text)
    assert all(line.startswith(("|---", "| ", "|--")) for line in text.split("\n") if line.startswith("|"))


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_marks_stand_where_the_axis_says(show, width):
    """12.4 GB/s is halfway from 0 to 24.8, on the left of all marks of the other row."""
    page = show(PAGES["diagnosis-winner"], width)
    fast, slow = (
        [mark.rect["x"] for mark in all_of(row, ".inside")] for row in all_of(page, "#explanation-1 .predicted-row")[:2]
    )
    labels = {text.text: text.rect for text in all_of(page, "#explanation-1 .predicted-axis text")[:6]}

    assert labels["10"]["x"] < min(slow) <= max(slow) < labels["15"]["x"]
    assert max(slow) < min(fast)
    assert labels["20"]["x"] < min(fast) <= max(fast) < labels["25"]["x"] + 40


@pytest.mark.browser
def test_a_value_far_outside_differs_by_shape_and_colour(show):
    page = show(PAGES["diagnosis-winner"])

    assert count(page, "#explanation-1 figure .far") == 0
    assert count(page, "#explanation-2 figure circle.far") > 10
    assert "higher than predicted" in find(page, "#explanation-2 .bad").text


@pytest.mark.browser
def test_dark_changes_the_chart_too(show, browser):
    colour = "return getComputedStyle(document.querySelector('rect.range')).fill"
    fills = []
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        fills.append(show(PAGES["diagnosis-winner"]).execute_script(colour))

    assert len(set(fills)) == 2


@pytest.mark.browser
def test_the_page_is_whole_without_scripts(show):
    page = show(without_scripts(PAGES["diagnosis-winner"]))

    assert "pcie-width-reduced (92 %)" in find(page, "#findings").text
    assert find(page, "#explanation-2 .predicted-chart").is_displayed()
    assert not find(page, "#theme").is_displayed()
