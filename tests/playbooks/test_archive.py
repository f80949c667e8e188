"""The components of the host's own archive: found in the sources that it has, added next to them, and only there."""

import pytest

from tests.playbooks.modules import shared

archive = shared("archive")
PLAN = {"archive": {"suite": "bookworm", "components": ["contrib", "non-free"]}}
MAIN = "deb http://mirror.example/debian bookworm main\n"
STANZA = """# the site's mirror
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    return tmp_path


def write(root, name, content):
    (root / "etc/apt" / name).write_text(content)


def wanted(root):
    return archive.wanted(PLAN, str(root))


def test_a_one_line_source_is_named_again_with_what_it_lacks(root):
    write(root, "sources.list", MAIN.replace("deb ", "deb [arch=amd64 signed-by=/k.gpg] "))

    assert wanted(root) == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: contrib non-free\n"
        "Signed-By: /k.gpg\nArchitectures: amd64\n"
    )


def test_every_suite_of_a_stanza_is_named_with_its_key(root):
    write(root, "sources.list.d/debian.sources", STANZA)

    stanzas = wanted(root).strip().split("\n\n")

    assert [stanza.splitlines()[2] for stanza in stanzas] == ["Suites: bookworm", "Suites: bookworm-updates"]
    assert all("Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in stanza for stanza in stanzas)


def test_a_key_that_stands_in_the_source_itself_is_carried_along_whole(root):
    """It goes on over many indented lines."""
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEX\n -----END PGP PUBLIC KEY BLOCK-----"
    write(root, "sources.list.d/debian.sources", STANZA.replace("/usr/share/keyrings/debian-archive-keyring.gpg", key))

    assert f"Signed-By: {key}\n" in wanted(root)


def test_what_the_host_has_is_not_named_again(root):
    """apt warns of every source that is named twice."""
    write(root, "sources.list", MAIN)
    write(root, "sources.list.d/more.list", "deb http://mirror.example/debian/ bookworm contrib\n")
    assert "Components: non-free\n" in wanted(root)

    write(root, "sources.list.d/most.list", "deb http://mirror.example/debian/ bookworm non-free\n")
    assert wanted(root) == ""
    assert archive.differences(PLAN, str(root)) == []


@pytest.mark.parametrize(
    "line",
    [
        STANZA + "Enabled: no",
        "deb https://download.example/linux/tool bookworm main",
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian bookworm-backports main",
        "# deb http://mirror.example/debian bookworm main",
        "deb-src http://mirror.example/debian bookworm main",
    ],
)
def test_sources_that_are_not_this_archive_are_left_alone(root, line):
    write(root, "sources.list.d/debian.sources" if line.startswith(STANZA) else "sources.list", line + "\n")

    assert wanted(root) is None
    assert "names the archive of bookworm" in archive.differences(PLAN, str(root))[0]
    assert archive.state(PLAN, str(root))["found"] is False


UBUNTU = {"archive": {"suite": "noble", "components": ["restricted", "multiverse"], "distribution": "ubuntu"}}


@pytest.mark.parametrize(
    "address", ["http://archive.ubuntu.com/ubuntu/", "http://azure.archive.ubuntu.com/ubuntu", "http://mirror/ubuntu"]
)
def test_ubuntus_archive_is_found_by_its_own_name(root, address):
    write(root, "sources.list.d/ubuntu.sources", f"Types: deb\nURIs: {address}\nSuites: noble\nComponents: main\n")

    assert f"URIs: {address.rstrip('/')}\n" in archive.wanted(UBUNTU, str(root))
    assert "Components: restricted multiverse\n" in archive.wanted(UBUNTU, str(root))
    assert archive.wanted({"archive": {**PLAN["archive"], "suite": "noble"}}, str(root)) is None


def test_our_own_file_is_compared_and_never_taken_for_the_hosts(root):
    """A second run finds what the first one wrote, and nothing to do."""
    write(root, "sources.list", MAIN)
    assert "is missing or different" in archive.differences(PLAN, str(root))[0]

    write(root, "sources.list.d/gpucheck-archive.sources", wanted(root))
    assert archive.differences(PLAN, str(root)) == []
    assert archive.state(PLAN, str(root))["right"] is True

    # The site names them itself now: ours goes.
    write(root, "sources.list", MAIN.replace("main", "main contrib non-free"))
    assert archive.state(PLAN, str(root))["content"] == ""
    assert archive.differences(PLAN, str(root)) != []


def test_a_plan_from_nvidias_repositories_asks_nothing_of_the_archive(root):
    assert archive.differences({"repositories": []}, str(root)) == []
    assert archive.state({"archive": {}}, str(root)) is None
    assert archive.paths({"archive": {}}) == []
    assert archive.paths(PLAN) == [archive.MANAGED_FILE]
