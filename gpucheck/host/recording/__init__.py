"""Recordings of a host: its facts, and when and by what they were read."""

import gzip
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.foreign import GZIP, UnreadableInput, bounded, read_bytes, unpacked
from gpucheck.model import NotRecorded
from gpucheck.model.facts import BY_NAME, Facts
from gpucheck.model.full_record import Difference, FullRecord

SCHEMA: Literal["gpucheck.recording/1"] = "gpucheck.recording/1"


class Recording(Facts, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """The facts of one host, read from a file: what was not recorded is not known, which is not "not there".

    gpucheck: version of the recorder. recorded: when, ISO 8601 with a time zone. redacted: see redaction.
    full: of gpucheck record --full. differences: what of it gpucheck did not expect.
    """

    schema_: Literal["gpucheck.recording/1"] = SCHEMA
    gpucheck: str
    recorded: str
    redacted: bool
    differences: tuple[Difference, ...] = ()
    redactions: dict[str, int] = {}  # noqa: RUF012 - copied by msgspec
    full: FullRecord | None = None


def recording(facts: Facts, *, version: str, now: str) -> Recording:
    """Return these facts as a recording, names in order. version: of gpucheck. now: ISO 8601."""
    parts = msgspec.structs.asdict(facts)
    parts |= {name: dict(sorted(parts[name].items())) for name in BY_NAME.values() if isinstance(parts[name], dict)}
    return Recording(gpucheck=version, recorded=now, redacted=False, **parts)


JSON = b"{"
# Read first by people: what of the recording is in the facts comes after it.
HEADER = ("schema", "gpucheck", "recorded", "redacted", "differences")
# A host with 72 GPUs and a full kernel log is about 15 MB of JSON, a twentieth of that compressed.
MOST_COMPRESSED, MOST_BYTES = 32 << 20, 128 << 20
ADVICE = "Give a file that gpucheck record wrote"


class _Kind(msgspec.Struct):
    schema: str = ""


def encode(recording: Recording) -> bytes:
    """The file's content, its header first; the same recording gives the same bytes."""
    plain = msgspec.to_builtins(recording)
    content = msgspec.json.encode({name: plain[name] for name in HEADER} | plain)
    return gzip.compress(content, compresslevel=6, mtime=0)


def read_recording(path: Path) -> Recording:
    return decode(read_bytes(path, MOST_COMPRESSED, ADVICE), str(path))


def decode(content: bytes, name: str) -> Recording:
    """The recording in a file's content. name: of the file, for messages. Raises UnreadableInput."""
    plain = _plain(content, name)
    try:
        kind = msgspec.json.decode(plain, type=_Kind).schema
        recording = msgspec.json.decode(plain, type=Recording) if kind == SCHEMA else None
        if recording is not None:
            datetime.fromisoformat(recording.recorded)
            recording.read("system", "simulation")  # whose report it would be, and whether of real hardware
    except (ValueError, RecursionError, NotRecorded) as error:
        raise UnreadableInput(name, f"damaged: {bounded(str(error))}", ADVICE) from error
    if recording is None:
        raise UnreadableInput(name, *_other_kind(kind))
    return recording


def _plain(content: bytes, name: str) -> bytes:
    """The JSON, out of its compression where it has any: someone may have looked inside."""
    if not content:
        raise UnreadableInput(name, "empty", ADVICE)
    if not content.startswith((GZIP, JSON)):
        raise UnreadableInput(name, "not a recording: it is neither gzip nor JSON", ADVICE)
    return unpacked(content, MOST_BYTES, name, ADVICE)


def _other_kind(kind: str) -> tuple[str, str]:
    stem, _, number = SCHEMA.rpartition("/")
    if kind.startswith(f"{stem}/") and kind.rpartition("/")[2].isdecimal():
        return f"a {kind[:80]}, and this gpucheck reads {stem}/{number}", "Update gpucheck, or record it again"
    what = f"a {kind[:80]!r}, not a recording" if kind else "not a recording: it states no schema"
    return what, ADVICE
