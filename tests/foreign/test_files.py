"""One door for files: what is no regular file is refused at once, and nothing is read beyond a bound."""

import gzip
import os
import socket
import subprocess
import sys
import tracemalloc

import pytest

from gpucheck.foreign import UnreadableInput, read_bytes, read_text, text_of, unpacked
from tests.shared import END_S

MIB = 1 << 20


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fifo", "is a FIFO"),
        ("folder", "is a directory"),
        ("socket", "is a socket"),
        ("/dev/zero", "is a device"),
        ("/dev/null", "is a device"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("missing", "cannot be read: No such file or directory"),
        ("n\0ul", "no NUL"),
        ("x" * 5000, "cannot be read: File name too long"),
    ],
)
def test_what_is_no_regular_file_is_refused_in_one_line(tmp_path, kind, words):
    """A FIFO would wait for a writer for ever; opening a watchdog device starts it."""
    path = tmp_path / kind
    listener = socket.socket(socket.AF_UNIX)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        listener.bind(str(path))
    elif kind == "loop":
        path.symlink_to(path)
    with listener, pytest.raises(UnreadableInput) as problem:
        read_bytes(str(path), MIB)

    assert words in str(problem.value)
    assert "\n" not in str(problem.value)
    assert str(problem.value).endswith("Give a file, or - for stdin.")


def test_a_fifo_that_takes_the_place_of_the_file_is_refused(tmp_path, monkeypatch):
    """Between the look at the name and the opening."""
    path = tmp_path / "file"
    path.write_text("x")
    real = os.open

    def swapped(name, flags):
        path.unlink()
        os.mkfifo(path)
        return real(name, flags)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(UnreadableInput, match="is a FIFO"):
        read_bytes(path, MIB)


def test_a_file_is_read_up_to_its_bound_and_no_more_is_held(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableInput, match=r"sparse: larger than 4 MiB\. Give a file"):
            read_bytes(path, 4 * MIB)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (tmp_path / "whole").write_bytes(b"x" * MIB)

    assert most < 16 * MIB
    assert read_bytes(tmp_path / "whole", MIB) == b"x" * MIB


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0"])
def test_a_pipe_that_was_given_is_read(name):
    """As <(command) of a shell and /dev/stdin are; the writer may be slow."""
    code = f"from gpucheck.foreign import read_bytes; print(read_bytes({name!r}, 9))"
    command = f"(sleep 0.3; echo late) | {sys.executable} -c '{code.replace(chr(39), chr(34))}'"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=END_S, check=True)

    assert done.stdout == "b'late\\n'\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_utf_8_and_marked_utf_16_are_text(tmp_path, encoding):
    (tmp_path / "file").write_bytes("ä: 1\n".encode(encoding))

    assert read_text(tmp_path / "file", MIB) == "ä: 1\n"


def test_what_is_no_text_names_the_byte(tmp_path):
    (tmp_path / "file").write_bytes(b"ab\xff")

    with pytest.raises(UnreadableInput, match=r"file: byte 2: not UTF-8 text\. Save the file as UTF-8\."):
        read_text(tmp_path / "file", MIB)
    assert text_of(b"ab\xff", errors="replace") == "ab\ufffd"


def test_packed_content_is_unpacked_within_its_bound():
    zstandard = pytest.importorskip("zstandard")
    plain = b"x" * MIB
    for packed in (gzip.compress(plain), gzip.compress(b"") + gzip.compress(plain), zstandard.compress(plain), plain):
        assert unpacked(packed, MIB, "f", "Do") == plain
    for packed, words in (
        (gzip.compress(b"x" * (64 * MIB)), "unpacks to more than 1 MiB"),
        (zstandard.compress(b"x" * (64 * MIB)), "unpacks to more than 1 MiB"),
        (gzip.compress(plain)[:-9], "cut off"),
        (gzip.compress(plain)[:100] + b"\xff" * 100 + gzip.compress(plain)[200:], "damaged"),
        (gzip.compress(plain) + b"more", "damaged"),
        (b"\x28\xb5\x2f\xfd" + b"\xff" * 100, "damaged"),
    ):
        with pytest.raises(UnreadableInput, match=f"^f: {words}"):
            unpacked(packed, MIB, "f", "Do")
