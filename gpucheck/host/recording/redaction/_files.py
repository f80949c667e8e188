"""Files of a redaction: the map from replacements to what they stand for, and a list of keywords."""

import os
import stat
from pathlib import Path

import msgspec

from gpucheck.host.recording.redaction._pseudonyms import Pseudonyms

SCHEMA = "gpucheck.redaction-map/1"
MOST_BYTES = 64 << 20
SHORTEST_KEYWORD = 3


class RedactionProblem(ValueError):
    """A map or a list of keywords cannot be used. The message is whole."""


class Map(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}, forbid_unknown_fields=True):
    """names: what each replacement stands for. Secrets are not among them."""

    schema_: str
    salt: str
    names: dict[str, str]


def read_map(path: Path) -> Pseudonyms:
    """The replacements of earlier recordings, or new ones where there is no such file. Raises RedactionProblem."""
    if not os.path.lexists(path):
        return Pseudonyms()
    content, status = _read(path)
    if status.st_mode & 0o077:
        raise RedactionProblem(f"{path}: can be read by other users. Protect the map: chmod 600 {path}")
    try:
        found = msgspec.json.decode(content, type=Map)
        salt = bytes.fromhex(found.salt)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RedactionProblem(f"{path}: is not a redaction map: {error}. Give a file that --map wrote.") from error
    if found.schema_ != SCHEMA or not 16 <= len(salt) <= 64:
        raise RedactionProblem(f"{path}: is not a {SCHEMA}. Give a file that --map wrote.")
    return Pseudonyms(salt, found.names)


def map_content(names: Pseudonyms) -> bytes:
    """The map as a file's content."""
    kept = Map(schema_=SCHEMA, salt=names.salt.hex(), names=dict(sorted(names.names.items())))
    return msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"


def read_keywords(path: Path) -> tuple[str, ...]:
    """The keywords of a file, one a line; empty lines and lines that begin with # are skipped.

    Raises RedactionProblem.
    """
    content, _ = _read(path)
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise RedactionProblem(f"{path}: is not UTF-8 text: {error.reason}. Give one keyword a line.") from error
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#") and len(line) < SHORTEST_KEYWORD:
            raise RedactionProblem(
                f"{path}:{number}: keyword {line!r} has fewer than {SHORTEST_KEYWORD} characters, and would be "
                "replaced inside of other words. Give a longer one."
            )
    return tuple(line for line in lines if line and not line.startswith("#"))


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    """Raises RedactionProblem."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RedactionProblem(f"{path}: is not a regular file.")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RedactionProblem(f"{path}: cannot be read: {error.strerror}.") from error
    if len(content) > MOST_BYTES:
        raise RedactionProblem(f"{path}: is larger than {MOST_BYTES >> 20} MiB.")
    return content, status
