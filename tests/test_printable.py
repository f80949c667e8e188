"""Text that gpucheck did not write itself is shown as it is stored, and does nothing."""

import json
import sys
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.model import Finding, Verdict
from gpucheck.printable import UNPRINTABLE, cleaned, excerpt, folded, for_terminal, indented, one_line, printable

SHOWN = {
    "node07": "node07",
    "é 漢字 µs Ω Привет 😀 ½": "é 漢字 µs Ω Привет 😀 ½",
    "a\nb\r\tc": r"a\nb\r\tc",
    "\x1b]0;x\x07": r"\x1b]0;x\x07",
    "\x7f\x9b2J\xad": r"\u007f\u009b2J\u00ad",
    "\u202e\u2028\u200b\ufeff\ufe0f\u3164": r"\u202e\u2028\u200b\ufeff\ufe0f\u3164",
    "\udcff": r"\udcff",
    "\ue000\U000e0041\U0010fffd": r"\ue000\udb40\udc41\udbff\udffd",
    "%s {} [red]": "%s {} [red]",
}
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


@pytest.mark.parametrize(("text", "shown"), SHOWN.items())
def test_unprintable_characters_become_escapes(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a b", "a b"), (" a\n\x1b[2Jb\u202e ", "a [2Jb"), ("x" * 50, "x" * 17 + "..."), ("", ""), ("y" * 20, "y" * 20)],
)
def test_excerpt_is_one_short_line(text, shown):
    assert excerpt(text, 20) == shown


def test_every_control_format_and_private_character_of_unicode_is_escaped():
    """By Python's own tables, which newer versions extend."""
    missed = [hex(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) in HIDDEN and not _escaped(c)]

    assert missed == []


def _escaped(code):
    return UNPRINTABLE.fullmatch(chr(code)) is not None


@given(st.text(st.characters()))
def test_printable_text_is_one_line_and_stays_as_it_is(text):
    shown = printable(text)

    assert shown.splitlines() in ([shown], [])
    assert printable(shown) == shown
    assert shown.encode("utf-8").decode() == shown


def test_long_text_keeps_both_ends_and_states_what_is_missing():
    """The end of a message says what to do."""
    assert one_line(f"{'x' * 5000}: no such file. Do this.", 90) == (
        f"{'x' * 60}... (4934 characters omitted) ...xxxxxx: no such file. Do this."
    )
    assert one_line("short", 90) == "short"


def test_several_lines_stand_behind_spaces_or_on_one_line():
    assert indented("a\nPASS\x1b\nc", 4) == "a\n    PASS\\x1b\n    c"
    assert folded("a\nPASS\x1b") == r"a PASS\x1b"


def test_terminal_gets_lines_tabs_and_colors_only():
    """No concealed text, no cursor movement; what is left is what gpucheck prints."""
    text = "\x1b[1mFAIL\x1b[0m\ta\n\x1b[38;2;1;2;3mx\x1b[8my\x1b[2J\r\x9b\u202e"

    assert for_terminal(text) == "\x1b[1mFAIL\x1b[0m\ta\n\x1b[38;2;1;2;3mx\\x1b[8my\\x1b[2J\\r\\u009b\\u202e"


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_json_on_a_terminal_stays_the_same_json(value):
    """JSON escapes what is below a space; the rest is escaped as JSON does."""
    assert json.loads(for_terminal(json.dumps(value, ensure_ascii=False))) == value


def test_cleaned_report_differs_only_where_it_has_to():
    """Every string at any depth; a value without such text is returned itself."""
    finding = Finding(check="x", verdict=Verdict.FAIL, subject="host", why="a\nb", fix="c\nd", evidence=("e\r",))
    named = msgspec.structs.replace(finding, subject="gpu:\n")
    values = {"a\n": [finding, (named, 1, None, 2.5, True)]}

    shown = cleaned(values)

    assert list(shown) == [r"a\n"]
    assert shown[r"a\n"][0] == msgspec.structs.replace(finding, evidence=(r"e\r",))
    assert shown[r"a\n"][1] == (
        msgspec.structs.replace(named, subject=r"gpu:\n", evidence=(r"e\r",)),
        1,
        None,
        2.5,
        True,
    )
    healthy = {"a": [msgspec.structs.replace(finding, evidence=())]}
    assert cleaned(healthy) is healthy
