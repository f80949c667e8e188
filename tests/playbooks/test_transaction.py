"""What a package transaction would do besides the plan, read from the package managers' own simulations."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.playbooks.modules import shared

transaction = shared("transaction")
calls = shared("call")
apt, dnf = shared("apt"), shared("dnf")

# apt 2.6, `apt-get --simulate install`; rows from runs on Debian 12, the NVIDIA names are put in their place.
APT = """Reading package lists...
Building dependency tree...
The following packages will be REMOVED:
  git nvidia-utils-570
The following packages will be upgraded:
  curl
The following packages will be DOWNGRADED:
  libibverbs1 nvidia-utils-580
Remv git [1:2.39.5-0+deb12u3]
Remv nvidia-utils-570 [570.195.03-0ubuntu1] [nvidia-driver-570:amd64 ]
Inst curl [7.88.1-10+deb12u14] (7.88.1-10+deb12u15 Debian:12.15/oldstable [amd64]) [libcurl4:amd64 ]
Inst libibverbs1:amd64 [50.0-2] (44.0-2 Debian:12.15/oldstable [amd64])
Inst nvidia-utils-580 [580.95.05-0ubuntu1] (580.65.06-0ubuntu1 NVIDIA:570 [amd64])
Inst libnvidia-cfg1-580 (580.65.06-0ubuntu1 NVIDIA:570 [amd64])
Conf curl (7.88.1-10+deb12u15 Debian:12.15/oldstable [amd64])
"""
# dnf 4 on EL 9, `dnf install --allowerasing containerd`, as pasted by a person; then a downgrade, a name that is longer
# than its column, an obsoleted package, and a kernel-devel that makes room for the newest.
DNF = """Last metadata expiration check: 0:10:11 ago.
Dependencies resolved.
================================================================================
 Package                     Arch     Version              Repository       Size
================================================================================
Installing:
 containerd                  x86_64   2.2.0-3.el9          epel             28 M
     replacing  docker-containerd.x86_64 1.0-1.el9
 kernel-devel                x86_64   5.14.0-503.el9       baseos           22 M
Installing dependencies:
 runc                        x86_64   4:1.4.0-1.el9_7      appstream       3.9 M
Removing:
 kernel-devel                x86_64   5.14.0-362.el9       @baseos          60 M
Removing dependent packages:
 docker-ce                   x86_64   3:28.5.1-1.el9       @docker-ce-stable
                                                                            86 M
 docker-ce-rootless-extras-with-a-long-name
                             x86_64   28.5.1-1.el9         @docker-ce-stable
                                                                            11 M
Downgrading:
 nvidia-driver-cuda-libs     x86_64   3:580.65.06-1.el9    cuda             64 M

Transaction Summary
================================================================================
Install    2 Packages
Remove     4 Packages
Downgrade  1 Package

Operation aborted.
"""


class Host:
    """Answers for programs by their first two words; .calls."""

    def __init__(self, **answers):
        self.answers, self.calls, self.params = answers, [], {}

    def run_command(self, argv, **_):
        self.calls.append(argv)
        if argv[:2] == ["dpkg", "--compare-versions"]:
            return (0 if argv[2] < argv[4] else 1), "", ""
        return self.answers[argv[0].replace("-", "_")]


def order(**more):
    return {"plan": PLAN, "planned": set(), "held": [], "allowed": [], **more}


PLAN = {"package_manager": "apt", "repositories": []}


def test_apt_simulation_is_read():
    host = Host(apt_get=(0, APT, ""))

    assert transaction.apt_moves(host, ["install", "x"]) == [
        ("remove", "git", "1:2.39.5-0+deb12u3", ""),
        ("remove", "nvidia-utils-570", "570.195.03-0ubuntu1", ""),
        ("upgrade", "curl", "7.88.1-10+deb12u14", "7.88.1-10+deb12u15"),
        ("downgrade", "libibverbs1", "50.0-2", "44.0-2"),
        ("downgrade", "nvidia-utils-580", "580.95.05-0ubuntu1", "580.65.06-0ubuntu1"),
        ("install", "libnvidia-cfg1-580", "", "580.65.06-0ubuntu1"),
    ]
    assert host.calls[0] == ["apt-get", "--simulate", "--yes", "install", "x"]


def test_dnf_simulation_is_read():
    host = Host(dnf=(1, DNF, ""))
    moves, _ = transaction.dnf_moves(host, ["install", "x"])

    assert host.calls == [["dnf", "--assumeno", "install", "x"]]
    assert [row[:2] for row in moves if row[0] == "install"] == [
        ("install", "containerd"),
        ("install", "kernel-devel"),
        ("install", "runc"),
    ]
    assert transaction.besides(moves, set()) == [
        ("remove", "docker-containerd", "1.0-1.el9", ""),
        ("remove", "docker-ce", "3:28.5.1-1.el9", ""),
        ("remove", "docker-ce-rootless-extras-with-a-long-name", "", ""),
        ("downgrade", "nvidia-driver-cuda-libs", "", "3:580.65.06-1.el9"),
    ]


def test_dnf_heading_of_upgrades_is_read():
    """dnf 4: a package that is there in an older version stands below a heading of its own."""
    table = "Upgrading:\n libnccl x86_64 2.30.7-1+cuda13.3 cuda 180 M\n"

    moves, _ = transaction.dnf_moves(Host(dnf=(1, table, "Operation aborted.\n")), [])

    assert moves == [("upgrade", "libnccl", "", "2.30.7-1+cuda13.3")]
    assert transaction.besides(moves, set()) == []


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("Total download size: 28 M", 28 << 20),
        ("Total size: 3.1 G\nTotal download size: 512 k", 512 << 10),
        ("Total download size: 964  ", 964),
        ("Total size: 3.1 G", 0),
        ("Freed space: 60 M", 0),
        ("", 0),
        ("Total download size: many", None),
    ],
)
def test_download_size_of_dnf_is_read(line, size):
    """dnf 4 counts in 1024s and names what its cache has in a line of its own (dnf.cli.output.reportDownloadSize)."""
    table = f"Removing:\n git x86_64 1 @b 60 M\n\nTransaction Summary\n{line}\n"

    moves, download_bytes = transaction.dnf_moves(Host(dnf=(1, table, "Operation aborted.\n")), [])

    assert (moves, download_bytes) == ([("remove", "git", "1", "")], size)


def test_transaction_of_dnf_that_installs_and_names_no_size_has_an_unknown_one():
    table = "Installing:\n git x86_64 1 baseos 60 M\n"

    assert transaction.dnf_moves(Host(dnf=(1, table, "Operation aborted.\n")), [])[1] is None


# apt 2.6, `apt-get --print-uris --yes install`, Debian 12; what the cache has is not listed.
URIS = """Reading package lists...
Building dependency tree...
'http://deb.debian.org/debian/pool/main/g/git/git_2.39.5-0%2bdeb12u3_amd64.deb' git_1%3a2.39.5.deb 7260668 SHA256:12ab
'http://deb.debian.org/debian/pool/main/c/curl/curl_7.88.1-10%2bdeb12u15_amd64.deb' curl_7.88.1.deb 316000 SHA256:34cd
"""


@pytest.mark.parametrize(
    ("answer", "size"), [((0, URIS, ""), 7576668), ((0, "Building\n", ""), 0), ((100, "", "E"), None)]
)
def test_download_size_of_apt_is_read(answer, size):
    host = Host(apt_get=answer)

    assert transaction.apt_download_bytes(host, ["install", "x"]) == size
    assert host.calls == [["apt-get", "--print-uris", "--yes", "install", "x"]]


def test_rows_of_a_transaction_have_the_version_before():
    """dnf's table lacks it; a kernel-devel that is installed next to another one replaces none."""
    rows = [("upgrade", "b", "1", "2"), ("upgrade", "c", "", "3"), ("install", "kernel-devel", "", "6")]
    seen = transaction.rows([transaction.Move(*row) for row in rows], {"b": "1", "c": "2", "kernel-devel": "5"})

    assert [row["before"] for row in seen] == ["1", "2", ""]


@pytest.mark.parametrize("read", [transaction.apt_moves, transaction.dnf_moves])
def test_transaction_without_solution_is_refused_in_the_programs_own_text(read):
    failed = (1, "", "Error: nothing provides dkms >= 3.1.8\n")

    with pytest.raises(calls.Refused, match=r"exit 1: Error: nothing provides dkms >= 3\.1\.8"):
        read(Host(apt_get=failed, dnf=failed), ["install", "x"])


def test_unmet_dependencies_of_apt_are_reported():
    """apt 2.6, Debian 12; they are on stdout."""
    output = "The following packages have unmet dependencies:\n curl : Depends: libcurl4 (= 7.88.1-10+deb12u5)\n"
    host = Host(apt_get=(100, output, "E: Unable to correct problems, you have held broken packages.\n"))

    with pytest.raises(calls.Refused, match=r"curl : Depends: libcurl4 \(= 7\.88.* E: Unable to correct problems"):
        transaction.apt_moves(host, ["install", "x"])


def test_foreign_removals_and_downgrades_are_refused_by_name():
    moves = transaction.apt_moves(Host(apt_get=(0, APT, "")), [])

    with pytest.raises(calls.Refused) as refused:
        transaction.guard(moves, order())
    assert str(refused.value) == (
        "the package transaction would also remove git 1:2.39.5-0+deb12u3; downgrade libibverbs1 50.0-2 to 44.0-2. "
        "These packages are not NVIDIA's, and nothing was installed or removed. If this is intended, allow it by "
        "name with packages_allow_changes: [git, libibverbs1]"
    )


@pytest.mark.parametrize("more", [{"allowed": ["git", "libib*"]}, {"planned": {"git", "libibverbs1"}}])
def test_allowed_and_planned_packages_may_move(more):
    transaction.guard(transaction.apt_moves(Host(apt_get=(0, APT, "")), []), order(**more))


def test_package_that_a_person_holds_is_not_changed():
    rows = [("upgrade", "slurmd", "", "24.05-1"), ("install", "cuda-toolkit-13-0", "", "13.0.2-1")]
    moves = [transaction.Move(*row) for row in rows]

    with pytest.raises(calls.Refused, match=r"would also change held slurmd 24\.05-1\."):
        transaction.guard(moves, order(held=["slurmd", "cuda-toolkit-13-0"]))
    transaction.guard(moves, order(held=["cuda-toolkit-13-0"]))


def test_apt_preparation_sees_planned_preferences_and_no_old_pin(tmp_path, monkeypatch):
    """The planned pin is not in place yet, and the old one keeps the planned version out."""
    folder = tmp_path / "preferences.d"
    folder.mkdir()
    for name in ("site", "nvidia-driver-pinning-570", "gpucheck-nvidia"):
        (folder / name).write_text(f"old {name}\n")
    monkeypatch.setattr(apt, "PREFERENCES", str(folder))
    monkeypatch.setattr(calls, "package_locks", lambda _: [])
    owned = f"/.\n{folder}/nvidia-driver-pinning-570\n"
    host, seen = Host(apt_get=(0, "", ""), dpkg_query=(0, owned, "")), []
    run = host.run_command

    def run_command(argv, **how):
        used = [word.partition("=")[2] for word in argv if word.startswith("Dir::Etc::PreferencesParts=")]
        seen.append({path.name: path.read_text() for path in Path(used[0]).iterdir()} if used else None)
        return run(argv, **how)

    files = [{"path": f"{folder}/gpucheck-nvidia", "content": "new\n"}, {"path": "/etc/x", "content": "x"}]
    lists = {
        "stale": [],
        "host": {"unplanned": {"held": []}},
        "compilers": ["g++"],
        "specs": ["driver=2-1"],
        "pins": ["nvidia-driver-pinning-570"],
        "files": files,
    }
    apt.prepare(SimpleNamespace(run_command=run_command, params={}), order(seconds=1, **lists), download=True)

    assert seen == [None, *[{"site": "old site\n", "gpucheck-nvidia": "new\n"}] * 2]
    words = ["install", "g++", "driver=2-1", "nvidia-driver-pinning-570-"]
    assert host.calls[1][-4:] == host.calls[2][-4:] == words
    assert "--simulate" in host.calls[1]
    assert "--download-only" in host.calls[2]
