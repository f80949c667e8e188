"""The archive that this machine uses is the lab's too."""

import pytest

from gpucheck.lab.images import AptSource, debian_archive, read_sources, security_archive


def test_sources_are_those_that_apt_reads(tmp_path, monkeypatch):
    """In both file formats, without disabled ones and sources of sources."""
    (tmp_path / "sources.list").write_text("deb https://deb.example/debian/ trixie main contrib\n")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "Types: deb\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\n\n"
        "Types: deb-src\nURIs: http://src.example/debian\nSuites: bookworm\nComponents: main\n"
    )
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "{tmp_path}/sources.list.d";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))

    assert set(read_sources()) == {
        ("https://deb.example/debian", "trixie"),
        ("http://m.example/debian", "bookworm"),
        ("http://m.example/debian", "bookworm-updates"),
    }
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_sources() == []


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
