"""A diagnosis as a page and as Markdown: nothing from outside, everything without scripts, and readable anywhere."""

import re

import pytest

from tests.browser import find
from tests.render.pages import DIAGNOSES, PAGES, without_scripts
from tests.render.views import diagnosis_markdown


def test_the_page_of_72_gpus_stays_small():
    assert len(PAGES["diagnosis-rack"]) < 100_000


def test_markdown_names_the_cause_and_the_other_suspects():
    text = diagnosis_markdown(DIAGNOSES["winner"])

    assert "- cause: pcie-width-reduced (likely)" in text
    assert "- or: uplink-downgraded: lspci" in text


def test_hostile_words_are_no_markdown():
    text = diagnosis_markdown(DIAGNOSES["hostile"])
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # commands

    assert not re.search(r"(?<!\\)[<`]", text)
    assert all(line.startswith(("|---", "| ", "|--")) for line in text.split("\n") if line.startswith("|"))


@pytest.mark.browser
def test_the_page_is_whole_without_scripts(show):
    page = show(without_scripts(PAGES["diagnosis-winner"]))

    assert "pcie-width-reduced (likely)" in find(page, "#findings").text
    assert not find(page, "#theme").is_displayed()
