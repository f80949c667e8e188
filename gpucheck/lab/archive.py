"""Debian's archive as this machine reaches it: where a base image can be made from when no registry answers."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
ARCHIVE_VARIABLE = "GPUCHECK_LAB_ARCHIVE"
DEFAULT_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+\S")


@dataclass(frozen=True)
class Source:
    """One archive of an apt source. signed_by: a keyring's path, None where the source names none."""

    uri: str
    suite: str
    signed_by: str | None = None


def read_sources(folder: Path = Path("/etc/apt")) -> list[Source]:
    """The machine's apt sources, of both file formats."""
    found: list[Source] = []
    lists = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]
    for path in (p for p in lists if p.is_file()):
        found += one_line_sources(path.read_text(encoding="utf-8", errors="replace"))
    for path in sorted((folder / "sources.list.d").glob("*.sources")):
        found += deb822_sources(path.read_text(encoding="utf-8", errors="replace"))
    return found


def one_line_sources(text: str) -> Iterator[Source]:
    """The archives of a sources.list."""
    for line in text.splitlines():
        match = ONE_LINE.match(line.strip())
        if match:
            options = dict(word.partition("=")[::2] for word in (match["options"] or "").split())
            yield Source(match["uri"].rstrip("/"), match["suite"], options.get("signed-by"))


def deb822_sources(text: str) -> Iterator[Source]:
    """The archives of a .sources file. Disabled stanzas and deb-src alone are skipped; an inline key is no path."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes").lower() in ("no", "false"):
            continue
        signed_by = fields.get("Signed-By", "")
        for uri in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                yield Source(uri.rstrip("/"), suite, signed_by if signed_by.startswith("/") else None)


def security_archive(sources: list[Source]) -> Source:
    """Where the security updates of the suite are: the machine's own source of them, else next to its archive."""
    suite = f"{SUITE}-security"
    own = next(
        (s for s in sources if s.uri.endswith("/debian-security") and s.uri.startswith(("http://", "https://"))), None
    )
    if own is not None and ARCHIVE_VARIABLE not in os.environ:
        return Source(own.uri, suite, own.signed_by)
    main = debian_archive(sources)
    return Source(f"{(main.uri if main else 'http://deb.debian.org/debian').removesuffix('/')}-security", suite)


def debian_archive(sources: list[Source]) -> Source | None:
    """Where to bootstrap Debian from: the environment's value, else the machine's own archive, else None (default).

    A machine on another Debian release still reaches every suite of the archive that it uses.
    """
    given = os.environ.get(ARCHIVE_VARIABLE)
    if given:
        return Source(given.rstrip("/"), SUITE)
    debian = [s for s in sources if s.uri.rstrip("/").endswith("/debian") and s.uri.startswith(("http://", "https://"))]
    exact = [s for s in debian if s.suite == SUITE]
    chosen = next(iter(exact or debian), None)
    return None if chosen is None else Source(chosen.uri, SUITE, chosen.signed_by)
