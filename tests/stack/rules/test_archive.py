"""A distribution's own archive as the package source: what it holds is planned, what it lacks is said or refused."""

import pytest

from gpucheck.knowledge.archives import archives
from gpucheck.stack import Refusal, StackSet, StackSpec, resolve
from gpucheck.stack.common import lock_common
from gpucheck.stack.lock import Lock, lock, read_lock, write_lock
from tests.stack import asked
from tests.stack.hosts import host

(DEBIAN_12,) = archives()


def spec(**values):
    return StackSpec(source="debian", **values)


def resolved(gpu, **values):
    found = resolve([gpu], "debian-12", spec=spec(**values))
    assert isinstance(found, StackSet), found
    return found


def refused(gpus, os="debian-12", arch=None, **values):
    found = resolve(gpus, os, arch, spec=spec(**values))
    assert isinstance(found, Refusal), found
    return found.conflicts[0]


def planned(**values):
    return asked.planned(spec(**values), "debian-12", "rtx3090-x2")


def test_the_set_is_what_the_archive_holds():
    found = resolved("RTX 3090")

    assert found.source == "debian"
    assert (found.driver.version, found.driver.kernel_module) == (DEBIAN_12.driver, "proprietary")
    assert found.cuda == DEBIAN_12.cuda
    assert (found.cudnn, found.nccl, found.container_toolkit) == (None, None, None)
    left_out = {reason.component for reason in found.reasons if reason.because.startswith("omitted")}
    assert left_out == {"cudnn", "nccl", "container_toolkit"}


def test_the_branch_that_nvidia_ended_is_said_to_be_kept_by_debian():
    (why,) = [reason.because for reason in resolved("RTX 3090").reasons if reason.component == "driver"]

    assert "NVIDIA ended it (2026-06)" in why
    assert "Debian's security team updates it" in why


@pytest.mark.parametrize(
    ("gpus", "values", "because", "way_out"),
    [
        (["H100 SXM"] * 8, {}, "has no fabric manager", "source nvidia instead of source debian"),
        (["B200"], {}, "the open modules of the archive are 535.261.03", "source nvidia instead of source debian"),
        (["H200 SXM"], {}, "branch 535 does not drive NVIDIA H200", "source nvidia instead of source debian"),
        (["T4"], {"kernel_module": "open"}, "the open modules of the archive are", "kernel_module proprietary"),
        (["T4"], {"driver": "580"}, "has no driver 580", f"driver {DEBIAN_12.driver} instead of driver 580"),
        (["T4"], {"cuda": "12.9"}, "has no CUDA 12.9", "cuda 11.8.0 instead of cuda 12.9"),
        (["T4"], {"nccl": "2.29.3"}, "has no NCCL", "nccl none instead of nccl 2.29.3"),
    ],
)
def test_what_the_archive_cannot_give_is_refused_with_the_change_that_works(gpus, values, because, way_out):
    conflict = refused(gpus, **values)

    assert because in conflict.because
    assert way_out in conflict.try_
    assert all(fact.source for fact in conflict.between)


@pytest.mark.parametrize("os", ["ubuntu-22.04", "debian-13", "rocky-9"])
def test_an_archive_that_was_not_read_is_refused(os):
    conflict = refused(["T4"], os)

    assert "source: debian does not work for" in conflict.because
    assert conflict.change == {"source": "nvidia"}


def test_an_architecture_that_was_not_read_is_refused():
    assert "for sbsa are not known" in refused(["H100 PCIe"], arch="sbsa").because


def test_the_container_toolkit_comes_from_its_own_repository_when_it_is_asked_for():
    """It depends on no driver package, so the two sources do not mix."""
    found = planned(container_toolkit="1.18.1")

    assert [row["name"] for row in found.repositories] == ["nvidia-container-toolkit"]
    assert len(found.components["container_toolkit"]["packages"]) == 4


def test_the_plan_names_the_components_of_the_hosts_own_archive_and_no_repository_of_nvidia():
    found = planned()

    assert found.repositories == ()
    assert found.archive == {"suite": "bookworm", "components": ["contrib", "non-free", "non-free-firmware"]}
    assert found.headers == ("linux-headers-6.1.0-38-amd64",)
    assert not any("/usr/local/cuda" in file["content"] for file in found.files)


def test_a_part_with_a_version_of_its_own_keeps_it_and_a_tool_is_not_held():
    """nvidia-persistenced is of another release than the driver; g++ may move with the system."""
    found = planned()
    versions = {row["name"]: row["version"] for row in found.components["driver"]["packages"]}

    assert versions["libnvidia-ml1"] == "535.309.01-0+deb12u1"
    assert versions["nvidia-persistenced"] == "535.171.04-1~deb12u1"
    assert found.components["cuda"]["holds"] == ["nvidia-cuda-toolkit"]


def test_a_release_that_the_archive_published_later_is_asked_for_with_its_revision():
    found = planned(driver="535.400.01-0+deb12u1")

    assert found.components["driver"]["packages"][0]["spec"] == "nvidia-kernel-dkms=535.400.01-0+deb12u1"
    assert found.expected["driver_version"] == "535.400.01"


def test_one_set_for_all_groups_is_the_archives():
    facts = [host("debian-12", "rtx3090-x2", "a"), host("debian-12", "t4-x1", "b")]
    made = lock_common(spec(), facts)

    assert isinstance(made, Lock), made
    assert {group.stack.driver.version for group in made.groups.values()} == {DEBIAN_12.driver}
    assert {group.stack.container_toolkit for group in made.groups.values()} == {None}


def test_the_lock_keeps_the_source_and_a_set_from_nvidia_does_not_mention_one():
    archive, nvidia = (lock(value, [host("debian-12", "rtx3090-x2")]) for value in (spec(), StackSpec(source="nvidia")))

    assert "\n      source: debian\n" in write_lock(archive)
    assert "\n      source:" not in write_lock(nvidia)
    assert read_lock(write_lock(archive), "lock").groups == archive.groups
