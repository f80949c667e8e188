"""A diagnosis as Markdown: lines that were not read, redaction, and the command that confirms a cause."""

import msgspec

from gpucheck.cli._shared.shown import redaction_of
from gpucheck.model.diagnosis import UnreadRange
from tests.render.diagnosed import finding, winner
from tests.render.pages import diagnosis
from tests.render.views import diagnosis_markdown


def test_markdown_names_lines_that_were_not_read_without_their_text():
    told = msgspec.structs.replace(
        diagnosis(winner()),
        unread=(UnreadRange(source="a.txt", first_line=10, last_line=11, text="secret: error: 7", why=""),),
    )
    text = diagnosis_markdown(told)

    assert "lines 10-11" in text
    assert "secret" not in text


def test_markdown_of_a_diagnosis_is_redacted_and_names_the_confirming_command():
    told = msgspec.structs.replace(
        diagnosis(winner()),
        source=("/home/alice/topo.txt",),
        findings=(finding(why="alice on trainbox17.example.edu, 10.20.30.40"),),
    )
    text = diagnosis_markdown(told, redaction_of(told))

    assert [word for word in ("alice", "trainbox17", "example.edu", "10.20.30.40") if word in text] == []
    assert "- confirm: `lspci -vv -s 0000:13:00.0`" in text
    assert "alice" in diagnosis_markdown(told)
