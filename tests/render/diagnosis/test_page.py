"""A diagnosis as a page and as Markdown: nothing from outside, everything without scripts, and readable anywhere."""

import re

import msgspec

from gpucheck.model.diagnosis import UnreadRange
from tests.render.pages import DIAGNOSES
from tests.render.views import diagnosis_markdown


def test_markdown_names_the_cause_and_the_other_suspects():
    text = diagnosis_markdown(DIAGNOSES["winner"])

    assert "- cause: pcie-width-reduced (likely)" in text
    assert "- or: uplink-downgraded: lspci" in text
    assert "- confirm: `lspci -vv -s 0000:13:00.0`" in text


def test_markdown_names_lines_that_were_not_read_without_their_text():
    unread = UnreadRange(source="a.txt", first_line=10, last_line=11, text="secret: error: 7", why="")
    text = diagnosis_markdown(msgspec.structs.replace(DIAGNOSES["winner"], unread=(unread,)))

    assert "lines 10-11" in text
    assert "secret" not in text


def test_hostile_words_are_no_markdown():
    text = diagnosis_markdown(DIAGNOSES["hostile"])
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # commands

    assert not re.search(r"(?<!\\)[<`]", text)
    assert all(line.startswith(("|---", "| ", "|--")) for line in text.split("\n") if line.startswith("|"))
