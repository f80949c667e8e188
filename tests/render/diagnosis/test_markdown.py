"""A diagnosis as Markdown: what was read, redaction, and the command that confirms a cause."""

import msgspec

from gpucheck.cli._shared.redaction import of
from gpucheck.model.diagnosis import ReadRange, UnreadRange
from tests.render.diagnosed import finding, winner
from tests.render.pages import diagnosis
from tests.render.views import diagnosis_markdown


def test_markdown_lists_what_was_read_and_shows_no_line_that_was_not():
    told = msgspec.structs.replace(
        diagnosis(winner()),
        read=tuple(
            ReadRange(kind="kernel-log", source="a.txt", first_line=first, last_line=last)
            for first, last in ((1, 9), (12, 12))
        ),
        unread=(UnreadRange(source="a.txt", first_line=10, last_line=11, text="secret", why="cut off"),),
    )
    text = diagnosis_markdown(told)

    assert "read as kernel-log: lines 1-9, 12" in text
    assert "lines 10-11: cut off" in text
    assert "secret" not in text


def test_markdown_of_a_diagnosis_is_redacted_and_names_the_confirming_command():
    told = msgspec.structs.replace(
        diagnosis(winner()),
        source=("/home/alice/topo.txt",),
        findings=(finding(why="alice on trainbox17.example.edu, 10.20.30.40"),),
    )
    text = diagnosis_markdown(told, of(told))

    assert [word for word in ("alice", "trainbox17", "example.edu", "10.20.30.40") if word in text] == []
    assert "- confirm: `lspci -vv -s 0000:13:00.0`" in text
    assert "alice" in diagnosis_markdown(told)
