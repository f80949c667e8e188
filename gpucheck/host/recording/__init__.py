"""Recordings of a host: its facts, and when and by what they were read."""

from typing import Literal

import msgspec

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
