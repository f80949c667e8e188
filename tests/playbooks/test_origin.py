"""Whose driver is on a host: told by who made its packages, and by names only where nobody says so."""

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.planned import compare_code
from tests.playbooks.stubs import program

origin = shared("origin")

CUDATOOLS = "cudatools <cudatools@nvidia.com>"
UBUNTU = "Ubuntu Core Developers <ubuntu-devel-discuss@lists.ubuntu.com>"
DEBIAN = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
KEY = "RSA/SHA512, Sat Apr 23 05:50:03 2022, Key ID 9cd0a493d42d0685"


@pytest.mark.parametrize(
    ("name", "version", "family", "told", "source"),
    [
        # Nobody says who made it: the names of the archives.
        ("linux-modules-nvidia-580-server-open-generic", "5.15.0-179.189", "dpkg", "", "other"),
        ("nvidia-utils-580-server", "580.95.05-0ubuntu0.22.04.2", "dpkg", "", "other"),
        ("libnvidia-compute-535", "535.183.01-0ubuntu0.22.04.1", "dpkg", "", "other"),
        ("libnvidia-compute-580", "580.95.05-0ubuntu0~gpu22.04.1", "dpkg", "", "other"),
        ("libnvidia-compute-580", "580.178.04-1ubuntu1", "dpkg", "", None),
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", "dpkg", "", None),
        ("bash", "5.1-6ubuntu0.1", "dpkg", UBUNTU, None),
        ("akmod-nvidia", "3:580.95.05-1.el9", "rpm", "", "other"),
        ("kmod-nvidia-470xx", "470.256.02-1.el9.elrepo", "rpm", "", "other"),
        ("kmod-nvidia-open-dkms", "3:580.178.04-1.el9", "rpm", "", None),
        # The archive's plain revision is that of NVIDIA's older packages: only the maker tells them apart.
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", "dpkg", UBUNTU, "distribution"),
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", "dpkg", CUDATOOLS, None),
        ("nvidia-kernel-dkms", "535.309.01-0+deb12u1", "dpkg", DEBIAN, "distribution"),
        ("kmod-nvidia", "580.95.05-1.el10", "rpm", "Red Hat, Inc.", "distribution"),
        ("nvidia-open-kmod", "580.105.08-2.el10_1", "rpm", "AlmaLinux", "distribution"),
        ("kmod-nvidia-580.178.04-5.14.0-503.11.1", "3:580.178.04-3.el9_5", "rpm", "", None),
        ("nvidia-driver-cuda-libs", "3:580.178.04-1.el9", "rpm", "NVIDIA CORPORATION", None),
        ("akmod-nvidia", "3:580.178.04-1.el9", "rpm", f"(none)\t{KEY}", None),
        # GPUDirect Storage, containers, firmware and the archive's CUDA are no driver.
        ("linux-modules-nvidia-fs-6.8.0-1013-nvidia", "6.8.0-1013.14", "dpkg", UBUNTU, None),
        ("nvidia-fs-dkms", "2.25.7-1", "dpkg", CUDATOOLS, None),
        ("nvidia-container-toolkit", "1.18.1-1", "dpkg", CUDATOOLS, None),
        ("nvidia-gpu-firmware", "20250812-1.el10", "rpm", "Red Hat, Inc.", None),
        ("nvidia-cuda-toolkit", "12.0.140~12.0.1-4build4", "dpkg", UBUNTU, None),
        ("nvidia-settings", "510.47.03-0ubuntu1", "dpkg", UBUNTU, None),
        # Debian's guide has it installed first: it names a driver and is none.
        ("nvidia-detect", "535.216.01-1~deb12u1", "dpkg", DEBIAN, None),
    ],
)
def test_a_driver_package_is_known_by_who_made_it(tmp_path, tools, name, version, family, told, source):
    maker, _, signature = told.partition("\t")
    row = f"{name}\\t{maker}\\t{signature}\\n"
    program(tools, "dpkg-query" if family == "dpkg" else "rpm", row.replace("'", ""))

    found = origin.by_source({name: version}, family, str(tmp_path / "none"))

    words = f"{name} {version}" + (f" ({maker})" if source == "distribution" else "")
    assert (found["other"], found["distribution"]) == (
        [words] if source == "other" else [],
        [words] if source == "distribution" else [],
    )


def test_a_package_database_that_does_not_answer_leaves_the_names(tmp_path, tools):
    program(tools, "rpm", "", status=1)

    assert origin.by_source({"akmod-nvidia": "1"}, "rpm", str(tmp_path / "none"))["other"] == ["akmod-nvidia 1"]


def test_a_runfile_installation_is_foreign_too(tmp_path):
    (tmp_path / "nvidia-uninstall").touch()

    assert origin.by_source({}, "rpm", str(tmp_path / "nvidia-uninstall"))["other"] == [
        f"{tmp_path}/nvidia-uninstall of a runfile installation"
    ]


def test_what_an_installer_left_behind_belongs_to_no_package(tmp_path):
    library, module = "usr/lib64/libcuda.so.580.95.05", "lib/modules/6.1.0-1/kernel/drivers/video/nvidia.ko"
    for name in (library, module, "lib/modules/5.10.0-1/updates/dkms/nvidia.ko"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def look(packages, dkms):
        return origin.without_package(packages, dkms, "6.1.0-1", str(tmp_path))

    assert look({"bash": "1", "nvidia-container-toolkit": "1"}, {}) == [
        f"{tmp_path}/{library} of no package",
        f"{tmp_path}/{module} of no package",
    ]
    assert look({"libnvidia-compute-580": "580.95.05-1"}, {}) == []
    assert look({}, {"580.95.05": ["6.1.0-1"]}) == []


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("run/ostree-booted", "", "Build the driver into that image"),
        ("etc/dgx-release", 'DGX_NAME="DGX Server"\nDGX_OTA_VERSION="7.2.1"\n', "this is DGX OS 7.2.1, whose"),
        ("etc/dgx-release", "x", "this is DGX OS, whose"),
        ("run/nvidia/nvidia-driver.pid", "12", "driver.enabled=false"),
    ],
)
def test_who_manages_the_driver_in_our_place_is_named_with_the_way_out(tmp_path, file, content, words):
    assert origin.managed(str(tmp_path)) == []
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)

    (said,) = origin.managed(str(tmp_path))

    assert words in said


def test_the_distributions_own_driver_is_foreign_only_where_its_archive_is_not_the_source(machine):
    words = "nvidia-kernel-dkms 535.309.01-1 (Debian NVIDIA Maintainers)"
    machine.facts["foreign"] = [words, "akmod-nvidia 1"]
    machine.extras["of_distribution"] = [words]
    assert machine.compare()["host"]["foreign"] == [words, "akmod-nvidia 1"]

    foreign = compare_code.foreign({"archive": {"suite": "bookworm"}}, machine.facts, machine.extras)
    assert foreign == ["akmod-nvidia 1"]


def test_packages_that_nvidia_says_to_have_made_are_told_apart_from_those_of_nobody(monkeypatch):
    """A plan with Ubuntu's driver refuses the first; of the others nothing is known."""
    made = {"nvidia-utils-580": "NVIDIA <cudatools@nvidia.com>", "nvidia-driver-pinning-580": "cudatools@nvidia.com"}
    monkeypatch.setattr(origin, "makers", lambda names, _: {name: (made.get(name, ""), "") for name in names})
    packages = {**dict.fromkeys(made, "580.95.05-1"), "libnvidia-compute-580": "1", "nvidia-container-toolkit": "1"}
    # Of any driver, and the program that role mig calls.
    made["nvidia-mig-manager"] = packages["nvidia-mig-manager"] = "NVIDIA CORPORATION <cudatools@nvidia.com>"

    assert origin.by_source(packages, "dpkg", "/nowhere")["nvidia"] == ["nvidia-utils-580 580.95.05-1"]


MIRROR = "https://mirror.example/ubuntu2204/x86_64/"
POLICY = """{name}:
  Installed: 1
  Candidate: 2
  Version table:
     2 500
        500 {newer} ./ Packages
 *** 1 500
        500 {url} ./ Packages
        100 /var/lib/dpkg/status
     0 500
        500 {newer} ./ Packages
"""


@pytest.mark.parametrize("manager", ["apt", "dnf"])
@pytest.mark.parametrize(
    ("name", "maker", "source", "archive", "ours"),
    [
        # NVIDIA's own word, whatever the name.
        ("nvlink5-580", CUDATOOLS, "", None, True),
        ("mft", "NVIDIA CORPORATION", "", None, True),
        # A mirror may rebuild packages: where they came from.
        ("egl-wayland", "", "planned", None, True),
        ("egl-wayland", "", "other", None, False),
        # Nobody says anything: names of NVIDIA's repositories.
        ("libcublas-13-0", "", "", None, True),
        ("datacenter-gpu-manager-4-core", "", "", None, True),
        ("openmpi-bin", "", "", None, False),
        ("libnvme1", "", "", None, False),
        ("libcurl4", UBUNTU, "", None, False),
        # A distribution's own, which is the plan's only where its archive is the source.
        ("libnvidia-compute-580", UBUNTU, "other", None, False),
        ("libnvidia-compute-580", UBUNTU, "other", {"suite": "jammy"}, True),
        # The drivers of the network are NVIDIA's too, and jobs need them.
        ("mlnx-ofed-kernel-dkms", CUDATOOLS, "planned", None, False),
        ("rdma-core", CUDATOOLS, "", None, False),
    ],
)
def test_what_a_transaction_may_move_is_known_by_maker_and_repository(
    tools, manager, name, maker, source, archive, ours
):
    urls = {"planned": MIRROR.rstrip("/"), "other": "https://archive.example/", "": "x"}
    program(tools, "apt-cache", POLICY.format(name=name, url=urls[source], newer="https://other.example"))
    program(tools, "dnf", f"{name}\t{'nvidia-cuda' if source == 'planned' else source}\n")
    for query in ("dpkg-query", "rpm"):
        program(tools, query, f"{name}\t{maker}\t\n")
    rows = [{"name": "nvidia-cuda", "url": MIRROR}]
    plan = {"package_manager": manager, "repositories": rows, "archive": archive}

    assert origin.of_nvidia({name}, plan) == ({name} if ours else set())


def test_names_decide_where_no_package_manager_answers(tools):
    plan = {"package_manager": "apt", "repositories": []}

    assert origin.of_nvidia({"libnccl2", "git"}, plan) == {"libnccl2"}
