"""The archive that this machine uses is found in either of apt's file formats."""

import pytest

from gpucheck.lab.images import (
    AptSource,
    deb822_sources,
    debian_archive,
    one_line_sources,
    read_sources,
    security_archive,
)

DEB822 = """# a comment
Types: deb
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://src.example/debian
Suites: bookworm
"""
ONE_LINE = """# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/keys/d.gpg] https://deb.example/debian trixie main contrib
deb https://pkg.example/apt tool main
"""


def test_deb822_sources():
    """Disabled stanzas and sources of sources are none."""
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

    assert list(deb822_sources(DEB822)) == [
        AptSource("http://mirror.example/debian", "bookworm", keyring),
        AptSource("http://mirror.example/debian", "bookworm-updates", keyring),
    ]


def test_one_line_sources():
    assert list(one_line_sources(ONE_LINE)) == [
        AptSource("https://deb.example/debian", "trixie", "/etc/keys/d.gpg"),
        AptSource("https://pkg.example/apt", "tool", None),
    ]


def test_both_formats_are_read_from_disk(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(ONE_LINE)
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)

    assert [s.uri for s in read_sources(tmp_path)] == [
        "https://deb.example/debian",
        "https://pkg.example/apt",
        "http://mirror.example/debian",
        "http://mirror.example/debian",
    ]


@pytest.mark.parametrize(
    ("uris", "chosen"),
    [
        (
            [("https://deb.example/debian", "trixie"), ("http://m.example/debian", "bookworm")],
            "http://m.example/debian",
        ),
        ([("https://deb.example/debian", "trixie")], "https://deb.example/debian"),
        ([("http://archive.example/ubuntu", "jammy")], None),
        ([("http://sec.example/debian-security", "bookworm-security")], None),
        ([("file:/srv/debian", "bookworm")], None),
    ],
)
def test_the_archive_that_is_chosen(uris, chosen, monkeypatch):
    """The suite we need first; on Ubuntu and where builds could not reach it, debootstrap's own default."""
    monkeypatch.delenv("GPUCHECK_LAB_ARCHIVE", raising=False)

    found = debian_archive([AptSource(uri, suite) for uri, suite in uris])

    assert (found and found.uri) == chosen
    assert found is None or found.suite == "bookworm"


def test_the_environment_names_another_archive(monkeypatch):
    monkeypatch.setenv("GPUCHECK_LAB_ARCHIVE", "https://site.example/debian/")

    assert debian_archive([]) == AptSource("https://site.example/debian", "bookworm")


@pytest.mark.parametrize(
    ("uris", "given", "expected"),
    [
        ([("http://sec.example/debian-security", "trixie-security")], None, "http://sec.example/debian-security"),
        ([("http://m.example/debian", "bookworm")], None, "http://m.example/debian-security"),
        ([], None, "http://deb.debian.org/debian-security"),
        # Whoever names an archive has its updates beside it, and no way to others.
        (
            [("http://sec.example/debian-security", "bookworm-security")],
            "https://site.example/debian/",
            "https://site.example/debian-security",
        ),
    ],
)
def test_security_updates_are_the_machines_own_or_beside_the_archive(uris, given, expected, monkeypatch):
    monkeypatch.delenv("GPUCHECK_LAB_ARCHIVE", raising=False)
    if given:
        monkeypatch.setenv("GPUCHECK_LAB_ARCHIVE", given)

    assert security_archive([AptSource(uri, suite) for uri, suite in uris]) == AptSource(expected, "bookworm-security")
