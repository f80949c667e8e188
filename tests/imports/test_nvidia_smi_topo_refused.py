"""What is no matrix is refused in one line that says what it is and what to do."""

import re

import pytest

from gpucheck.imports import ImportProblem, read
from tests.imports.corpus import PAIR


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("hello world", "not the output of nvidia-smi topo -m"),
        ("GPU0 and GPU1 are hot", "it starts with"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "no GPU row follows"),
        ("GPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n", "no line above it that names the columns"),
        (" \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n", "topo -p2p"),
        ("a\0b", "binary"),
        (PAIR.encode("utf-16-le"), "UTF-16"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
        (b"\x1f\x8b\x08\x00\x00\x00", "binary"),
    ],
)
def test_what_is_no_matrix_is_refused_in_one_line_with_the_next_step(text, words):
    with pytest.raises(ImportProblem) as problem:
        read(text)

    message = str(problem.value)
    assert words in message
    assert "\n" not in message
    assert message.isprintable()
    assert all((problem.value.what, problem.value.where, problem.value.why, problem.value.do))


def test_utf_16_with_a_byte_order_mark_is_read():
    """PowerShell's > writes that."""
    assert read(PAIR.encode("utf-16")) == read(PAIR)


def test_a_message_quotes_the_input_in_one_short_line():
    with pytest.raises(ImportProblem, match=re.escape('it starts with "a b c", which')):
        read("a\t\tb \x1b c\nd")


def test_two_labels_of_one_gpu_are_no_header():
    """A fuzzer's find: a damaged GPU17 that reads GPU07 beside GPU7."""
    paste = "\tGPU7\tGPU07\nGPU7\t X \tPIX\nGPU07\tPIX\t X \n"

    with pytest.raises(ImportProblem):
        read(paste)
