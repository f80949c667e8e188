"""Recordings as files: gzip around JSON. Reading takes any bytes and ends in a recording or in one clear sentence."""

import gzip
import os
import stat
import zlib
from pathlib import Path

import msgspec

from gpucheck.host.recording import SCHEMA, Recording

GZIP, JSON = b"\x1f\x8b", b"{"
# A host with 72 GPUs and a full kernel log is about 15 MB of JSON, a twentieth of that compressed.
MOST_COMPRESSED, MOST_BYTES = 32 << 20, 128 << 20
ADVICE = "Give a file that gpucheck record wrote."


class RecordingProblem(ValueError):
    """A file is no recording that can be replayed. The message is whole."""


class _Kind(msgspec.Struct):
    """Whatever else is in it, what a document says it is."""

    schema: str = ""


def encode(recording: Recording) -> bytes:
    """The file's content; the same recording gives the same bytes."""
    return gzip.compress(msgspec.json.encode(recording), compresslevel=6, mtime=0)


def read_recording(path: Path) -> Recording:
    """The recording in a file. Raises RecordingProblem."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingProblem(f"{path}: cannot be read: {error.strerror}. {ADVICE}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordingProblem(f"{path}: is not a regular file. {ADVICE}")
    with os.fdopen(descriptor, "rb") as file:
        try:
            content = file.read(MOST_COMPRESSED + 1)
        except OSError as error:
            raise RecordingProblem(f"{path}: cannot be read: {error.strerror}. {ADVICE}") from error
    return decode(content, str(path))


def decode(content: bytes, name: str) -> Recording:
    """The recording in a file's content. name: of the file, for messages. Raises RecordingProblem."""
    plain = _plain(content, name)
    try:
        kind = msgspec.json.decode(plain, type=_Kind).schema
        if kind != SCHEMA:
            raise RecordingProblem(_other_kind(kind, name))
        return msgspec.json.decode(plain, type=Recording)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingProblem(f"{name}: is damaged: {error}. {ADVICE}") from error


def _plain(content: bytes, name: str) -> bytes:
    """The JSON, out of its compression where it has any: someone may have looked inside."""
    if not content:
        raise RecordingProblem(f"{name}: is empty. {ADVICE}")
    if len(content) > MOST_COMPRESSED:
        raise RecordingProblem(f"{name}: is larger than {MOST_COMPRESSED >> 20} MiB, which no recording is. {ADVICE}")
    if content.startswith(JSON):
        return content
    if not content.startswith(GZIP):
        raise RecordingProblem(f"{name}: is not a recording: it is neither gzip nor JSON. {ADVICE}")
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = stream.decompress(content, MOST_BYTES + 1)
    except zlib.error as error:
        raise RecordingProblem(f"{name}: is damaged: {error}. {ADVICE}") from error
    if len(plain) > MOST_BYTES:
        raise RecordingProblem(
            f"{name}: unpacks to more than {MOST_BYTES >> 20} MiB, which no recording does. {ADVICE}"
        )
    if not stream.eof:
        raise RecordingProblem(f"{name}: is cut off in the middle. Copy or record it again.")
    if stream.unused_data:
        raise RecordingProblem(f"{name}: is damaged: something follows after its end. {ADVICE}")
    return plain


def _other_kind(kind: str, name: str) -> str:
    stem, _, number = SCHEMA.rpartition("/")
    if kind.startswith(f"{stem}/") and kind.rpartition("/")[2].isdecimal():
        return f"{name}: is a {kind}, and this gpucheck reads {stem}/{number}. Update gpucheck, or record it again."
    said = f"is a {kind!r}" if kind else "does not say what it is"
    return f"{name}: {said}, not a recording. {ADVICE}"
