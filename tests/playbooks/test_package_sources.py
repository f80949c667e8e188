"""Package sources in one round trip: pins before anything is written, then the lists, or all is as it was."""

from types import SimpleNamespace

import pytest

from tests.playbooks.modules import answer_of, module, programs, shared
from tests.playbooks.planned import DATA

sources = module("package_sources")
keys = shared("signing_keys")
place = shared("place")
repository_code = shared("package_repository")

RSA, EDDSA = "E330F152D648B8AD42B0AF30D384DE7990FFEED0", "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB"
FILES = {RSA: "signing-key-rsa2048.asc", EDDSA: "signing-key-ed25519.asc"}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Folders of sources and keys; .fetched lists the addresses asked, .rpm the calls of rpm and what it trusts.

    .read is the calls that read package lists, .answer what the package manager says to them.
    """

    found = SimpleNamespace(fetched=[], rpm=[], read=[], answer=(0, "", ""), answers=[], trusted=[], folder=tmp_path)

    def fetch(_, url):
        found.fetched.append(url)
        return b"", shared("openpgp").read_key((DATA / url).read_bytes())

    def run(argv, **_):
        if argv[0] != "rpm":
            found.read.append(argv)
            return found.answers.pop(0) if found.answers else found.answer
        found.rpm.append(argv)
        return (0, "", "")

    monkeypatch.setattr(shared("call"), "package_locks", lambda _: [])
    for name in ("APT_LISTS", "YUM_REPOS", "RPM_KEYS"):
        monkeypatch.setattr(repository_code, name, str(tmp_path / name))
    monkeypatch.setattr(keys, "fetch", fetch)
    monkeypatch.setattr(shared("host"), "rpm_keys", lambda: found.trusted)
    programs(monkeypatch, run)
    return found


def repository(host, kind="apt", name="cuda", pin=RSA, **more):
    place = (
        {"suite": "/", "keyring": str(host.folder / f"keyrings/{name}.gpg")} if kind == "apt" else {"signed": "both"}
    )
    row = {"name": name, "kind": kind, "url": f"https://m/{name}/", "key_url": FILES[pin], "key_fingerprint": pin}
    return {**row, **place, **more}


def go(*rows, archive=None, **modes):
    manager = rows[0]["kind"] if rows else "apt"
    params = {"host": "node01", "package_manager": manager, "repositories": list(rows), "archive": archive or {}}
    return answer_of(sources, params, **modes)


def left(host):
    return sorted(path.name for path in host.folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_what_it_writes_is_what_the_comparison_wants_and_a_second_run_asks_nobody(host, kind):
    rows = [repository(host, kind), repository(host, kind, "toolkit", EDDSA)]

    assert go(*rows)["changed"] is True
    host.trusted = [RSA, EDDSA]
    assert repository_code.differences({"repositories": rows}, host.trusted) == []
    asked = list(host.fetched)

    assert go(*rows)["changed"] is False
    assert host.fetched == asked == [FILES[RSA], FILES[EDDSA]]


def test_one_wrong_key_and_nothing_is_written_for_any_repository(host):
    said = go(repository(host), repository(host, name="toolkit", pin=RSA, key_url=FILES[EDDSA]))

    assert f"has fingerprint {EDDSA}, pinned is {RSA}: rejected, nothing was written" in said["msg"]
    assert left(host) == []


def test_a_key_is_imported_into_rpm_only_where_it_is_not_trusted_yet(host):
    row = repository(host, "dnf")
    path = repository_code.paths(row)[1]
    go(row)
    assert ["rpm", "--import", path] in host.rpm

    host.rpm.clear()
    assert go(row)["paths"] == [path]
    host.trusted = ["0" * 32 + RSA[-8:]]
    assert go(row)["paths"] == [path]
    host.trusted, host.rpm[:] = [RSA], []
    assert go(row)["paths"] == []
    assert all("--import" not in argv for argv in host.rpm)


@pytest.mark.parametrize(("signed", "checks"), [("both", "1 1"), ("packages", "1 0"), ("metadata", "0 1")])
def test_dnf_checks_what_the_publisher_signs(host, signed, checks):
    row = repository(host, "dnf", signed=signed)
    go(row)
    lines = (host.folder / "YUM_REPOS/cuda.repo").read_text().splitlines()

    assert lines[0] == "[cuda]"
    assert f"gpgcheck = {checks[0]}" in lines
    assert f"repo_gpgcheck = {checks[2]}" in lines
    assert f"gpgkey = file://{host.folder}/RPM_KEYS/RPM-GPG-KEY-cuda" in lines

    def said(trusted):
        return repository_code.differences({"repositories": [row]}, trusted)

    assert said([RSA]) == []
    # Another key with the same last eight digits is another key.
    assert said(["0" * 32 + RSA[-8:]]) == ["cuda: its key is not imported into rpm"]
    path = host.folder / "YUM_REPOS/cuda.repo"
    path.write_text(path.read_text().replace("repo_gpgcheck = ", "repo_gpgcheck = 1"))
    assert said([RSA]) == [f"cuda: {path} is missing or different"]


def test_components_of_the_archive_are_named_and_taken_away_again(host):
    path = str(host.folder / "APT_LISTS/gpucheck-archive.sources")

    assert go(archive={"path": path, "content": "Types: deb\n"})["paths"] == [path]
    assert go(archive={"path": path, "content": "Types: deb\n"})["paths"] == []
    assert go(archive={"path": path, "content": ""})["paths"] == [path]
    assert left(host) == []


def test_dnf_reads_lists_of_planned_sources_also_if_they_were_there(host):
    rows = [repository(host, "dnf"), repository(host, "dnf", "toolkit", EDDSA)]
    words = ["dnf", "--assumeyes", "--quiet", "--refresh", "makecache", "--repo", "cuda", "--repo", "toolkit"]
    go(*rows)
    host.trusted = [RSA, EDDSA]

    assert go(*rows)["changed"] is False
    assert host.read == [words, words]


def test_apt_reads_lists_of_planned_sources_first(host):
    rows = [repository(host), repository(host, name="toolkit", pin=EDDSA)]
    update = ["apt-get", "--quiet", "--option", "Acquire::Retries=2"]
    alone = ["--option", "Dir::Etc::sourceparts=-", "--option", "APT::Get::List-Cleanup=0", "update"]
    words = [
        [*update, "--option", f"Dir::Etc::sourcelist={host.folder}/APT_LISTS/{name}.list", *alone]
        for name in ("cuda", "toolkit")
    ]
    go(*rows)

    assert go(*rows)["changed"] is False
    assert host.read == [*words, [*update, "update"]] * 2


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_lists_that_are_refused_leave_no_source_behind(host, kind):
    """Keys stay: nothing is trusted because of them alone."""
    archive = {"path": str(host.folder / "APT_LISTS/gpucheck-archive.sources"), "content": "Types: deb\n"}
    host.answer = (100, "", "E: The repository is not signed.\n")
    said = go(repository(host, kind), archive=archive if kind == "apt" else None)

    assert said["msg"].startswith(f"node01: {kind}")
    assert "rejects the package lists" in said["msg"]
    assert "https://m/cuda/" in said["msg"]
    assert "exit 100: E: The repository is not signed. A wrong signature means" in said["msg"]
    assert left(host) == ["cuda.gpg" if kind == "apt" else "RPM-GPG-KEY-cuda"]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_a_mirror_that_is_away_costs_a_host_no_source_that_it_had(host, kind):
    """It was provisioned before: its own upgrades use that source."""
    row = repository(host, kind)
    go(row)
    (before,) = [name for name in left(host) if name.startswith("cuda.") and not name.endswith(".gpg")]
    host.answer = (100, "", "E: 503 Service Unavailable\n")

    said = go(row, repository(host, kind, name="toolkit"))

    assert "rejects the package lists" in said["msg"]
    assert [name for name in left(host) if name.endswith((".list", ".repo"))] == [before]
    assert repository_code.differences({"repositories": [row]}, [RSA]) == []


APT_SAID = """Hit:1 http://archive/debian bookworm InRelease
Err:2 {}  InRelease
  Could not connect to m:443 (10.0.0.1). - connect (111: Connection refused)
Reading package lists...
"""


def test_a_source_of_ours_that_apt_could_not_reach_is_no_success_though_apt_says_so(host):
    host.answer = (0, APT_SAID.format("https://m/cuda"), "W: Some index files failed\n")
    said = go(repository(host))

    assert "apt-get update: https://m/cuda: Could not connect to m:443" in said["msg"]
    assert "check the address in stack.yml" in said["msg"]
    assert left(host) == ["cuda.gpg"]


@pytest.mark.parametrize("status", [0, 100])
@pytest.mark.parametrize("url", ["https://site/old", "https://m/cuda-old"])
def test_foreign_source_that_fails_is_named_and_stops_nothing(host, status, url):
    """Also if its address begins like a planned one; apt-get exits with 100 for an expired key."""
    host.answers = [(0, "", ""), (status, APT_SAID.format(url), "E: some index files failed\n")]
    result = go(repository(host))

    assert result["failed"] is False
    assert result["unread"] == [f"{url}: Could not connect to m:443 (10.0.0.1). - connect (111: Connection refused)"]
    assert "cuda.list" in left(host)


def test_where_one_source_cannot_be_written_none_stays(host, monkeypatch):
    """Half of the sources would bring half of the packages from elsewhere."""
    real = place.put

    def full(module, path, content, mode=0o644):
        if path.endswith("toolkit.list"):
            raise OSError(28, "No space left on device", path)
        real(module, path, content, mode)

    monkeypatch.setattr(place, "put", full)
    said = go(repository(host), repository(host, name="toolkit"))

    assert "No space left on device" in said["msg"]
    assert f"removed again: {host.folder}/APT_LISTS/cuda.list. Free space" in said["msg"]
    assert left(host) == ["cuda.gpg", "toolkit.gpg"]


def test_a_planted_second_key_is_a_difference_and_is_replaced(host):
    row = repository(host)
    go(row)
    key = host.folder / "keyrings/cuda.gpg"
    good = key.read_bytes()
    key.write_bytes(good + shared("openpgp").read_key((DATA / FILES[EDDSA]).read_bytes()))

    assert repository_code.differences({"repositories": [row]}, []) == [
        f"cuda: {key} holds key {RSA}, {EDDSA}, planned {RSA}"
    ]
    assert go(row)["paths"] == [str(key)]
    assert key.read_bytes() == good
