"""Where DKMS comes from: the plan's repository is named only where no source of the host has DKMS."""

from pathlib import Path

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.planned import DATA

dkms, dnf = shared("dkms"), shared("dnf")
keys, repository_code, call_code = shared("signing_keys"), shared("package_repository"), shared("call")

RSA = "E330F152D648B8AD42B0AF30D384DE7990FFEED0"
ROW = {
    "name": "gpucheck-epel",
    "kind": "dnf",
    "url": "https://mirror.example.org/epel/9/",
    "key_url": "signing-key-rsa2048.asc",
    "key_fingerprint": RSA,
    "signed": "packages",
    "include": ["dkms"],
}
SOURCE = {"repository": ROW, "enable": ["crb", "elsewhere"]}
ENABLED = "--setopt=crb.enabled=1 --setopt=crb.skip_if_unavailable=1"
ORDER = {
    "host": {"superfluous": [], "unfinished": [], "versionlock": True},
    "seconds": 1,
    "stream_planned": True,
    "prerequisites": [],
    "compilers": [],
    "stale": [],
    "specs": ["driver-2-1"],
    "dkms_source": SOURCE,
    "planned": {"driver"},
    "held": set(),
    "allowed": [],
}


class Host:
    """.calls and .simulated: of dnf and rpm; .offered what the sources have, .broken a word of a call that fails."""

    def __init__(self, folder):
        self.calls, self.simulated, self.offered, self.broken, self.folder = [], [], "", "", folder
        self.params = {}

    def run_command(self, argv, **_):
        words = [word for word in argv if word not in ("--assumeyes", "--quiet")]
        calls = self.simulated if "--assumeno" in words else self.calls
        calls.append(" ".join(words).replace("\n", ""))
        if self.broken and self.broken in words:
            return 1, "", "no route to host"
        return 0, self.offered if "repoquery" in words else "", ""

    def atomic_move(self, source, target, **_):
        Path(source).replace(target)

    def left(self):
        return sorted(path.name for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture
def host(tmp_path, monkeypatch):
    found = Host(tmp_path)
    monkeypatch.setattr(call_code, "package_locks", lambda _: [])
    monkeypatch.setattr(repository_code, "YUM_REPOS", str(tmp_path / "yum.repos.d"))
    monkeypatch.setattr(repository_code, "RPM_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(keys, "fetch", lambda _, url: (b"", shared("openpgp").read_key((DATA / url).read_bytes())))
    (tmp_path / "yum.repos.d").mkdir()
    (tmp_path / "yum.repos.d/rocky.repo").write_text("[baseos]\nenabled=1\n\n[crb]\nenabled=0\n")
    return found


def test_a_source_of_the_host_that_has_dkms_is_enough(host):
    """Of the system's own repositories those that it knows are used in these calls alone."""
    host.offered = "dkms\n"
    dnf.bring(host, {**ORDER, "prerequisites": ["epel-release"], "compilers": ["gcc-c++"]})

    assert host.calls == [
        f"dnf {ENABLED} --setopt=strict=0 install epel-release gcc-c++",
        f"dnf {ENABLED} repoquery --queryformat %{{name}} dkms",
        f"dnf {ENABLED} --allowerasing --setopt=install_weak_deps=False --setopt=keepcache=1 install driver-2-1",
    ]
    assert [words.replace(" --assumeno", "") for words in host.simulated] == host.calls[-1:]
    assert host.left() == ["rocky.repo"]


def test_else_the_planned_repository_is_named_with_its_pinned_key_for_dkms_alone(host):
    dnf.bring(host, ORDER)

    assert [words.split()[0] + " " + words.split()[-1] for words in host.calls] == [
        "dnf dkms",
        f"rpm {host.folder}/keys/RPM-GPG-KEY-gpucheck-epel",
        "dnf gpucheck-epel",
        "dnf driver-2-1",
    ]
    content = (host.folder / "yum.repos.d/gpucheck-epel.repo").read_text()
    assert "[gpucheck-epel]" in content
    assert "includepkgs = dkms" in content
    assert "gpgcheck = 1" in content
    assert repository_code.source_as_planned(ROW, str(host.folder / "yum.repos.d/gpucheck-epel.repo"))
    assert repository_code.key_as_planned(ROW)


def test_a_repository_that_cannot_be_read_is_taken_out_again(host):
    host.broken = "makecache"
    with pytest.raises(call_code.Refused, match=r"No source of this host offers dkms.*none if your own sources"):
        dnf.bring(host, ORDER)

    assert host.left() == ["RPM-GPG-KEY-gpucheck-epel", "rocky.repo"]


@pytest.mark.parametrize("plan", [{}, {"dkms_source": None}, {"dkms_source": SOURCE}])
def test_nothing_is_asked_without_a_planned_source_or_with_dkms_installed(host, plan):
    source = dkms.wanted(plan, {"dkms": "3.2.1-1.el9"})
    dnf.bring(host, {**ORDER, "dkms_source": source})

    assert host.calls == ["dnf --allowerasing --setopt=install_weak_deps=False --setopt=keepcache=1 install driver-2-1"]
    assert dkms.wanted({"dkms_source": SOURCE}, {}) == SOURCE


def test_its_files_and_its_key_count_as_ours():
    plan = {"repositories": [], "dkms_source": SOURCE}

    assert repository_code.planned(plan) == [ROW]
    assert repository_code.planned({"repositories": [], "dkms_source": {}}) == []
