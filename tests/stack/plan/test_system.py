"""What a plan takes from the system itself: kernel headers, compilers, EPEL with CRB, and a Python."""

import re
from pathlib import Path

import msgspec
import pytest

from gpucheck.knowledge.packages import packages
from gpucheck.stack import StackSpec, parse_spec
from gpucheck.stack.plan import Plan
from gpucheck.stack.spec import Repository
from gpucheck.stack.text import plan_text
from tests.stack import recordings
from tests.stack.hosts import SYSTEMS
from tests.stack.plan.test_plan import planned

ARM = "h100-pcie-x2-arm64"


@pytest.mark.parametrize(
    ("system", "kernel", "header"),
    [
        # GH200 with 64 KiB pages: id 55071925926.
        ("rhel-9", "5.14.0-503.el9.aarch64+64k", "kernel-64k-devel-matched-5.14.0-503.el9.aarch64"),
        ("rhel-9", "5.14.0-503.el9.aarch64", "kernel-devel-matched-5.14.0-503.el9.aarch64"),
        ("rocky-10", "6.12.0-124.el10.aarch64+64k", "kernel-64k-devel-matched-6.12.0-124.el10.aarch64"),
        ("rhel-9", "5.14.0-503.el9.x86_64+rt", "kernel-rt-devel-5.14.0-503.el9.x86_64"),
        ("rhel-9", "5.14.0-503.el9.x86_64+debug", "kernel-debug-devel-matched-5.14.0-503.el9.x86_64"),
        ("rhel-8", "4.18.0-553.rt7.342.el8_10.x86_64", "kernel-rt-devel-4.18.0-553.rt7.342.el8_10.x86_64"),
        ("rhel-8", "4.18.0-553.el8_10.x86_64", "kernel-devel-4.18.0-553.el8_10.x86_64"),
        ("oracle-9", "5.15.0-311.uek.x86_64", "kernel-uek-devel-5.15.0-311.uek.x86_64"),
        ("ubuntu-24.04", "6.8.0-1032-aws", "linux-headers-6.8.0-1032-aws"),
    ],
)
def test_headers_are_those_of_the_kernels_variant_and_nothing_else(system, kernel, header):
    """kernel-headers of the running kernel are not asked for: DKMS does not read them, and sources keep few."""
    assert planned(system, ARM if "aarch64" in kernel else "t4-x1", kernel=kernel).headers == (header,)


@pytest.mark.parametrize(
    ("system", "spec", "pattern"),
    [
        ("ubuntu-24.04", StackSpec(), "linux-headers-{flavor}"),
        ("debian-12", StackSpec(), "linux-headers-{flavor}"),
        # No upgrade brings a kernel.
        ("ubuntu-24.04", StackSpec(kernel_lock="hold"), msgspec.UNSET),
        # kernel-devel-matched follows kernel-core.
        ("rocky-9", StackSpec(), msgspec.UNSET),
    ],
)
def test_later_kernels_of_debian_and_ubuntu_bring_their_headers(system, spec, pattern):
    found = planned(system, "t4-x1", spec)

    assert found.header_metapackage == pattern
    assert ("linux-headers-{flavor}, of the flavor" in plan_text(found)) == bool(pattern)


def test_a_kernel_that_is_not_the_hosts_own_has_no_headers_that_follow_it():
    found = planned("ubuntu-24.04", "t4-x1", stand_ins=("kernel: that of the machine below",))

    assert (found.headers, found.header_metapackage) == ((), msgspec.UNSET)


@pytest.mark.parametrize(
    ("system", "kernel", "compilers"),
    [
        ("ubuntu-22.04", "5.15.0-179-generic", ("g++",)),
        ("ubuntu-22.04", "6.8.0-1032-aws", ("g++", "gcc-12", "g++-12")),
        ("ubuntu-24.04", "6.8.0-106-generic", ("g++",)),
        ("rocky-9", "5.14.0-570.el9_6.x86_64", ("gcc-c++",)),
    ],
)
def test_the_compiler_is_the_one_that_the_kernel_was_built_with(system, kernel, compilers):
    assert planned(system, "t4-x1", kernel=kernel).compilers == compilers


def test_proprietary_modules_hold_no_cpp():
    assert planned("ubuntu-24.04", "v100-sxm2-x8").compilers == ()


@pytest.mark.parametrize("system", ["rocky-8", "rocky-9", "almalinux-10"])
def test_the_key_of_epel_is_the_one_that_documents_show(system):
    found = planned(system, "t4-x1")
    pinned = [
        row["fingerprint"] for row in recordings.document("keys") if row["folder"] == f"epel-{found.os['version']}"
    ]

    assert set(pinned) == {found.dkms_source["repository"]["key_fingerprint"]}


def test_a_sites_mirror_of_epel_has_its_own_key():
    mirror = Repository(url="https://mirror/epel/", key_url="https://mirror/key", key_fingerprint="AB" * 20)
    found = planned("rhel-9", "t4-x1", StackSpec(repositories={"epel": mirror}))

    assert found.dkms_source
    row = found.dkms_source["repository"]
    assert (row["url"], row["key_fingerprint"]) == ("https://mirror/epel/", "AB" * 20)
    # The release package would name the public addresses beside it.
    assert planned("rocky-9", "t4-x1", StackSpec(repositories={"epel": mirror})).prerequisites == ()


def test_a_site_whose_own_sources_hold_dkms_goes_without_epel():
    found = planned("rocky-9", "t4-x1", parse_spec("repositories:\n  epel: none\n", "stack.yml"))

    assert not found.dkms_source
    assert found.prerequisites == ()


def test_systems_with_dkms_of_their_own_need_no_further_source():
    found = planned("ubuntu-24.04", "t4-x1")

    assert not found.dkms_source
    assert found.prerequisites == ()


@pytest.mark.parametrize(
    "system", [name for name in SYSTEMS if name not in ("centos-7", "centos-stream-8", "ubuntu-20.04")]
)
def test_gpucheck_has_a_python_that_is_new_enough(system):
    """EL 8 and 9 have 3.6 and 3.9."""
    python = planned(system, "t4-x1").python
    older = system.endswith(("-8", "-9"))

    assert python["interpreter"] == ("python3.12" if older else "python3")
    assert python["packages"] == (["python3.12", "python3.12-pip"] if older else [])


def test_the_python_that_is_needed_is_the_one_of_the_package():
    stated = re.search(r'requires-python = ">=([\d.]+)"', Path("pyproject.toml").read_text(encoding="utf-8"))

    assert stated
    assert stated[1] == packages().python.minimum


def test_a_plan_of_before_is_still_read():
    raw = msgspec.to_builtins(planned("rocky-9", "t4-x1"))
    older = {
        key: value for key, value in raw.items() if key not in ("python", "compilers", "dkms_source", "unconfirmed")
    }

    assert msgspec.json.decode(msgspec.json.encode(older), type=Plan).compilers == ()
    assert "compilers" in plan_text(msgspec.convert(older, Plan))
