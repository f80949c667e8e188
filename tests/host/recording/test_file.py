"""Recordings as files: whole ones come back, and of everything else one sentence says what is wrong."""

import gzip
import os
import tracemalloc

import msgspec
import pytest

from gpucheck.foreign import UnreadableInput
from gpucheck.host import recording as recording_file
from gpucheck.host.recording import decode, encode, read_recording
from tests.host.recording.test_recording import written

RECORDING = written()
WHOLE = encode(RECORDING)


def document(**changes):
    """The recording's JSON with other keys."""
    return msgspec.json.encode(msgspec.to_builtins(RECORDING) | changes)


def test_a_recording_comes_back_as_it_was(tmp_path):
    (tmp_path / "node07.rec").write_bytes(WHOLE)

    assert read_recording(tmp_path / "node07.rec") == RECORDING


def test_equal_recordings_are_equal_files():
    assert encode(RECORDING) == WHOLE


def test_a_recording_that_someone_unpacked_is_read():
    assert decode(gzip.decompress(WHOLE), "x") == RECORDING


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02 binary", "neither gzip nor JSON"),
        ("GPU0\tGPU1\n".encode("utf-16"), "neither gzip nor JSON"),
        (WHOLE[:-200], "cut off"),
        (WHOLE[:2], "cut off"),
        (WHOLE[:100] + b"\xff" * 50 + WHOLE[150:], "damaged"),
        (WHOLE + b"more", "damaged: Not a gzipped file"),
        (gzip.compress(b""), "damaged"),
        (gzip.compress("{}".encode("utf-16")), "damaged"),
        (gzip.compress(b"[" * 100_000), "damaged"),
        (b"{" + b'"a":[' * 100_000, "damaged"),
        (b"{}", "it states no schema"),
        (b'{"schema": 7}', "damaged: Expected `str`"),
        (document(schema="gpucheck.report/1"), "a 'gpucheck.report/1', not a recording"),
        (document(schema="gpucheck.recording/2"), "a gpucheck.recording/2, and this gpucheck reads gpucheck.reco"),
        (document(pci="none"), "damaged: Expected `array`, got `str` - at `$.pci`"),
        (document(nvml={"type": "rumour"}), "damaged"),
        (document(recorded="yesterday"), "damaged: Invalid isoformat string: 'yesterday'"),
    ],
    ids=range(18),
)
def test_file_that_is_not_a_recording_is_one_sentence(content, why):
    with pytest.raises(UnreadableInput) as problem:
        decode(content, "x.rec")

    assert why in str(problem.value)
    assert str(problem.value).startswith("x.rec: ")
    assert "\n" not in str(problem.value)


def test_a_bomb_is_not_unpacked(monkeypatch):
    """A thousandth of its size is on the disk; only as much as the limit is ever in memory."""
    monkeypatch.setattr(recording_file, "MOST_BYTES", 1 << 20)
    bomb = gzip.compress(b'{"schema":"' + b"a" * (64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableInput, match="unpacks to more than 1 MiB"):
            decode(bomb, "x")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 8 << 20


def test_a_huge_file_is_not_read_to_its_end(monkeypatch, tmp_path):
    monkeypatch.setattr(recording_file, "MOST_COMPRESSED", 1 << 20)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(UnreadableInput, match="larger than 1 MiB"):
        read_recording(tmp_path / "huge")


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing", "device"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    """And a pipe without a writer is not waited for."""
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises(UnreadableInput) as problem:
        read_recording(path)

    assert str(path) in str(problem.value)
