"""Which kernel a host is upgraded to where no source has the headers of the running one, and what is asked for it."""

import json

import pytest

from tests.playbooks.modules import answer_of, module, programs, shared

task = module("kernel_upgrade")
calls, headers, kernel, record = map(shared, ("call", "offers", "kernel", "record"))
APT = {"package_manager": "apt", "headers": ["linux-headers-6.8.0-45-generic"], "kernel": "upgrade"}
RUNNING = "6.8.0-45-generic"
# As apt 2.7 prints it on Ubuntu 24.04, metapackage and headers at a newer kernel.
SIMULATED = """Reading package lists...
Inst linux-modules-6.8.0-110-generic (6.8.0-110.110 Ubuntu:24.04/noble-updates [amd64])
Inst linux-image-6.8.0-110-generic (6.8.0-110.110 Ubuntu:24.04/noble-updates [amd64])
Inst linux-image-generic [6.8.0-45.45] (6.8.0-110.110 Ubuntu:24.04/noble-updates [amd64])
Inst linux-headers-6.8.0-110 (6.8.0-110.110 Ubuntu:24.04/noble-updates [all])
Inst linux-headers-6.8.0-110-generic (6.8.0-110.110 Ubuntu:24.04/noble-updates [amd64])
Inst linux-headers-generic (6.8.0-110.110 Ubuntu:24.04/noble-updates [amd64])
Conf linux-image-generic (6.8.0-110.110 Ubuntu:24.04/noble-updates [amd64])
"""
EL = "5.14.0-427.13.1.el9_4.x86_64"
DNF = {"package_manager": "dnf", "headers": [f"kernel-devel-matched-{EL}"], "kernel": "upgrade"}
INSTALLED = "5.14.0-427.13.1.el9_4"
IMAGES = ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core")


class Host:
    """A package manager that answers; .argvs are what it was asked, .files the kernel's packages by name."""

    def __init__(self):
        self.argvs, self.simulated, self.offers, self.table = [], SIMULATED, "", ""
        self.facts = {"kernel": RUNNING, "kernels": [RUNNING], "holds": []}
        self.extras = {"packages": {"linux-image-generic": "6.8.0-45.45"}, "locks": [], "kernels": {}}

    def el(self):
        self.facts.update(kernel=EL, kernels=[EL])
        self.extras["kernels"] = {name: [INSTALLED] for name in (*IMAGES, "kernel-tools", "kernel-headers")}

    def run_command(self, argv, **_):
        self.argvs.append(argv)
        if "repoquery" in argv:
            return 0, self.offers, ""
        if "--simulate" in argv:
            return 0, self.simulated, ""
        if "--assumeno" in argv:
            return 1, self.table, "Operation aborted.\n"
        return 0, "", ""

    def changed(self):
        """The calls that move packages or fetch them."""
        quiet = ("repoquery", "--simulate", "--assumeno", "update", "makecache", "--compare-versions")
        return [argv for argv in self.argvs if not any(word in argv for word in quiet)]


@pytest.fixture
def host(tmp_path, monkeypatch):
    found = Host()
    programs(monkeypatch, found.run_command)
    monkeypatch.setattr(task, "read_facts", lambda _: (found.facts, found.extras))
    monkeypatch.setattr(calls, "package_locks", lambda _: [])
    monkeypatch.setattr(headers, "command", lambda argv: found.argvs.append(argv) or "")
    monkeypatch.setattr(kernel, "NOTE", str(tmp_path / "kernel-lock.json"))
    monkeypatch.setattr(record, "TRANSACTION", str(tmp_path / "transaction.json"))
    found.folder = tmp_path
    return found


def go(plan, state="present", **options):
    return answer_of(task, {"host": "node01", "plan": plan, "state": state, **options})


def offered(*releases, names=(*IMAGES, "kernel-devel-matched")):
    return "".join(f"{name} {release}.x86_64\n" for release in releases for name in names)


def test_apt_brings_what_the_kernel_metapackages_bring_with_the_headers(host):
    answer = go(APT)

    assert (answer["release"], answer["reason"]) == ("6.8.0-110-generic", "")
    assert answer["packages"] == ["linux-image-generic", "linux-headers-generic"]
    assert answer["headers"] == ["linux-headers-6.8.0-110-generic"]
    assert [argv[-3:] for argv in host.changed()] == [["install", "linux-image-generic", "linux-headers-generic"]]


def test_asking_fetches_lists_of_its_own_and_changes_nothing(host):
    answer = go(APT, "asked")

    assert answer["release"] == "6.8.0-110-generic"
    assert any("Dir::State::lists=" in word for argv in host.argvs for word in argv if "--simulate" in argv)
    assert host.changed() == []


def test_preparing_downloads_and_installs_nothing(host):
    go(APT, "prepared")

    assert all("--download-only" in argv for argv in host.changed())
    assert host.changed()


@pytest.mark.parametrize(
    ("packages", "holds", "simulated", "reason"),
    [
        ({}, [], SIMULATED, "no kernel metapackage is installed, so an upgrade installs no kernel"),
        (None, ["linux-image-generic"], SIMULATED, "linux-image-generic is held, so an upgrade installs no kernel"),
        (None, [], "Reading package lists...\n", "no newer kernel for linux-image-generic"),
        (
            None,
            [],
            "\n".join(line for line in SIMULATED.splitlines() if "headers-6.8.0-110-generic" not in line),
            "kernel 6.8.0-110-generic would be installed without linux-headers-6.8.0-110-generic",
        ),
    ],
)
def test_why_apt_has_no_kernel_to_upgrade_to(host, packages, holds, simulated, reason):
    host.simulated = simulated
    host.facts["holds"] = holds
    if packages is not None:
        host.extras["packages"] = packages

    assert reason in go(APT, "asked")["reason"]
    answer = go(APT)
    assert answer["failed"]
    assert answer["msg"].startswith("node01: the kernel cannot be upgraded: ")
    assert reason in answer["msg"]
    assert "kernel: keep" in answer["msg"]
    assert host.changed() == []


def test_holds_that_we_set_and_the_plan_lifts_do_not_stand_in_the_way(host):
    host.facts["holds"] = ["linux-image-generic"]
    (host.folder / "kernel-lock.json").write_text(json.dumps({"holds": ["linux-image-generic"]}))

    assert go(APT)["release"] == "6.8.0-110-generic"
    assert "--allow-change-held-packages" in host.changed()[0]


def test_dnf_takes_the_newest_kernel_whose_headers_are_offered_too(host):
    host.el()
    host.offers = offered("5.14.0-503.11.1.el9_5", "5.14.0-427.13.1.el9_4") + offered(
        "5.14.0-570.12.1.el9_6", names=IMAGES
    )

    answer = go(DNF)

    assert answer["release"] == "5.14.0-503.11.1.el9_5.x86_64"
    names = (*IMAGES, "kernel-devel-matched")
    assert answer["packages"] == [f"{name}-5.14.0-503.11.1.el9_5.x86_64" for name in names]
    assert host.changed()[0][-len(names) - 1 :] == ["install", *answer["packages"]]


def test_dnf_keeps_the_variant_of_the_kernel(host):
    base = "5.14.0-427.13.1.el9_4.aarch64"
    host.facts.update(kernel=base + "+64k", kernels=[base + "+64k"])
    host.extras["kernels"] = {"kernel-64k-core": [INSTALLED], "kernel-core": ["5.14.0-400.el9"]}
    host.offers = "".join(
        f"{name} 5.14.0-503.11.1.el9_5.aarch64\n" for name in ("kernel-64k-core", "kernel-64k-devel-matched")
    )

    answer = go({**DNF, "headers": [f"kernel-64k-devel-matched-{base}"]})

    assert answer["release"] == "5.14.0-503.11.1.el9_5.aarch64+64k"
    assert answer["packages"][0] == "kernel-64k-core-5.14.0-503.11.1.el9_5.aarch64"


@pytest.mark.parametrize("offers", ["", offered("5.14.0-427.13.1.el9_4"), offered("5.14.0-427.9.1.el9_4")])
def test_dnf_without_a_newer_kernel_says_so(host, offers):
    host.el()
    host.offers = offers

    assert go(DNF, "asked")["reason"] == "the package sources have no newer kernel with kernel-devel-matched"


def test_a_kernel_of_no_package_is_told(host):
    host.el()
    host.extras["kernels"] = {}

    assert "belongs to no package" in go(DNF, "asked")["reason"]


def test_an_upgrade_that_would_remove_a_foreign_package_is_refused(host):
    host.simulated += "Remv zfs-dkms [2.2.2]\n"

    answer = go(APT)

    assert answer["failed"]
    assert "remove zfs-dkms" in answer["msg"]
    assert host.changed() == []
    assert go(APT, allow_changes=["zfs-*"])["release"] == "6.8.0-110-generic"


def test_the_kernel_belongs_to_the_system_and_not_to_us(host):
    """Otherwise deprovisioning, or a later run, would take the kernel away that runs."""
    (host.folder / "transaction.json").write_text(json.dumps({"packages": ["bash"]}))
    host.extras["packages"] = {"linux-image-generic": "1", "linux-image-6.8.0-110-generic": "1", "nvidia-dkms-580": "1"}

    go(APT)

    noted = json.loads((host.folder / "transaction.json").read_text())["packages"]
    assert noted == ["bash", "linux-image-6.8.0-110-generic", "linux-image-generic"]
