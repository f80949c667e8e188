"""A diagnosis as Markdown: what was read, redaction, and the command that confirms a cause."""

from typing import NamedTuple

import msgspec

from gpucheck.cli._shared.redaction import of_diagnosis
from gpucheck.render.diagnosis import markdown as diagnosis_markdown
from gpucheck.render.diagnosis import to_markdown
from gpucheck.render.markdown import Markdown
from tests.render.diagnosed import finding, winner
from tests.render.pages import diagnosis


class Lines(NamedTuple):
    """A part of an input."""

    kind: str
    source: str
    first_line: int
    last_line: int
    why: str = ""


class Read(NamedTuple):
    """A diagnosis that lists what was read."""

    read: tuple[Lines, ...]
    unread: tuple[Lines, ...] = ()


def test_markdown_lists_what_was_read():
    told = Read(
        (Lines("kernel-log", "a.txt", 1, 9), Lines("kernel-log", "a.txt", 12, 12)),
        (Lines("", "a.txt", 10, 11, "cut off"),),
    )
    text = "\n".join(diagnosis_markdown._read(told, Markdown()))

    assert "| kernel-log | 1-9, 12 | a.txt |" in text
    assert "| not understood: cut off | 10-11 | a.txt |" in text


def test_markdown_of_a_diagnosis_is_redacted_and_names_the_confirming_command():
    told = msgspec.structs.replace(
        diagnosis(winner()),
        source=("/home/alice/topo.txt",),
        findings=(finding(why="alice on trainbox17.example.edu, 10.20.30.40"),),
    )
    text = to_markdown(told, change=of_diagnosis(told))

    assert [word for word in ("alice", "trainbox17", "example.edu", "10.20.30.40") if word in text] == []
    assert "- confirm: `lspci -vv -s 0000:13:00.0`" in text
    assert "alice" in to_markdown(told)
