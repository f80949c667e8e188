"""Long lines of findings on a terminal."""

import re

import pytest

from gpucheck.cli._shared.width import fitted, table
from tests.cli.commands import on_a_terminal
from tests.forked import gpucheck
from tests.shared import sampled

HEAD = "FAIL    nvlink, fabric  GPU 2 (0000:4c:00.0): 17 NVLinks, expected 18, and more words"
WHY = "        why       NVLink 3 is inactive on this NVIDIA H100 80GB HBM3, and its other end too."
FIX = "        fix       sudo nvidia-smi --gpu-reset --id 0000:4c:00.0 and then a very long line of commands"


def test_prose_hangs_below_its_beginning():
    assert fitted(HEAD, 60).splitlines() == [
        "FAIL    nvlink, fabric  GPU 2 (0000:4c:00.0): 17 NVLinks,",
        "        expected 18, and more words",
    ]
    assert fitted(WHY, 60).splitlines() == [
        "        why       NVLink 3 is inactive on this NVIDIA H100",
        "                  80GB HBM3, and its other end too.",
    ]


def test_a_sentence_of_a_list_hangs_below_it():
    item = "  All 16 hosts with low copies have rack = r002, as have 0 of the others."

    assert fitted(item, 40).splitlines() == [
        "  All 16 hosts with low copies have rack",
        "    = r002, as have 0 of the others.",
    ]
    assert fitted("  key: a value of YAML that is longer than the line is.", 40).count("\n") == 0


def test_color_takes_no_room():
    colored = HEAD.replace("FAIL   ", "\x1b[31m\x1b[1mFAIL   \x1b[0m")

    assert re.sub(r"\x1b\[[0-9;]*m", "", fitted(colored, 60)) == fitted(HEAD, 60)


@pytest.mark.parametrize(
    "line", ["GPU0  X  NV18  " * 9, '        "why": "a long line of JSON that is not ours"', "word" * 40]
)
def test_tables_and_other_formats_are_kept(line):
    assert fitted(line, 60) == line


def test_a_step_that_is_a_command_is_not_broken():
    """So that it can be copied: its line is indented further than text."""
    command = "sudo nvidia-smi --gpu-reset --id 0000:4c:00.0 and more words than fit"

    for line in (f"        fix         {command}", f"                    {command}"):
        assert fitted(line, 40) == line


def test_nothing_is_changed_without_a_terminal_or_on_a_tiny_one():
    text = f"{HEAD}\n{WHY}"

    assert (fitted(text, None), fitted(text, 20), fitted(text, 200)) == (text, text, text)


def test_no_word_is_lost():
    text = f"{HEAD}\n{WHY}\n{FIX}\n"

    assert fitted(text, 50).split() == text.split()


def test_a_row_hangs_below_its_last_column():
    rows = "step    tags\nbar1    hardware, pcie, quick, and more words\n"
    rows += "xid:code=N[,switch=0,age=600]  the kernel log holds it"

    assert table(rows, 40).split("\n") == [
        "step    tags",
        "bar1    hardware, pcie, quick, and more",
        "        words",
        "xid:code=N[,switch=0,age=600]",
        "      the kernel log holds it",
    ]
    assert (table(rows, None), table(rows, 60)) == (rows, rows)


def test_a_markdown_table_is_printed_as_records():
    rows = "| variant | serves |\n| --- | --- |\n| torch | Pascal, Volta, Turing, Ampere, Ada, Hopper |\n"

    assert table(rows, 40) == "torch\n  serves   Pascal, Volta, Turing,\n           Ampere, Ada, Hopper"


@pytest.mark.parametrize("words", sampled([(["profiles"],), (["explain"],), (["image", "list"],)], (2,)), ids=" ".join)
def test_lists_fit_the_terminal(words):
    """All but names, which are not broken, and no word is lost."""
    status, text = on_a_terminal(*words, COLUMNS="70", TERM="dumb")
    piped = gpucheck(*words).stdout

    assert status == 0
    assert all(len(line) <= 70 or " " not in line.strip() for line in text.splitlines())
    assert set(re.findall(r"[^\s|]+", piped)) - set(text.split()) <= {"---", "variant"}


def test_verify_fits_the_terminal():
    words = ("verify", "--simulate", "hgx-h100-x8", "--level", "quick", "--skip", "acs")
    status, text = on_a_terminal(*words, COLUMNS="70", TERM="dumb")

    assert status == 0
    assert max(len(line) for line in text.splitlines() if not line.startswith("        ")) <= 70
