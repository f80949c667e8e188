"""Archives of distributions as package sources: Debian's for everything, Ubuntu's for the driver alone."""

import pytest

from gpucheck.knowledge.archives import archives, ubuntu
from gpucheck.stack import StackSpec
from gpucheck.stack.lock import lock, write_lock
from gpucheck.stack.plan import plan
from gpucheck.stack.text import plan_text
from tests.stack import asked
from tests.stack.asked import answer, refusal, reread
from tests.stack.hosts import host

(DEBIAN_12,) = archives()
DRIVER = "580.95.05-0ubuntu0.24.04.1"


def of_debian(**values):
    return StackSpec(source="debian", **values)


def of_ubuntu(**values):
    return StackSpec(**{"source": "ubuntu", "driver": DRIVER, **values})


def debian_plan(**values):
    return asked.planned(of_debian(**values), "debian-12", "rtx3090-x2")


def ubuntu_plan(gpus="h100-pcie-x2", **changes):
    return asked.planned(of_ubuntu(), "ubuntu-24.04", gpus, **changes)


def names(found, part):
    return [row["name"] for row in found.components[part]["packages"]]


@pytest.mark.parametrize(
    ("gpus", "os", "spec", "because", "advice"),
    [
        (["H100 SXM"] * 8, "debian-12", {}, "has no fabric manager", "source nvidia instead of source debian"),
        (["B200"], "debian-12", {}, "the open modules of the archive are 535.261.03", "source nvidia instead of"),
        (["H200 SXM"], "debian-12", {}, "branch 535 does not drive NVIDIA H200", "source nvidia instead of"),
        (["T4"], "debian-12", {"kernel_module": "open"}, "the open modules of the archive", "kernel_module propr"),
        (["T4"], "debian-12", {"driver": "580"}, "has no driver 580", f"driver {DEBIAN_12.driver} instead of"),
        (["T4"], "debian-12", {"cuda": "12.9"}, "has no CUDA 12.9", "cuda 11.8.0 instead of cuda 12.9"),
        (["T4"], "debian-12", {"nccl": "2.29.3"}, "has no NCCL", "nccl none instead of nccl 2.29.3"),
        *(
            (["T4"], os, {}, "source: debian does not work for", "source nvidia")
            for os in ("ubuntu-22.04", "debian-13", "rocky-9")
        ),
    ],
)
def test_set_that_debians_archive_cannot_give_is_rejected_with_a_change(gpus, os, spec, because, advice):
    conflict = refusal(gpus, os, spec=of_debian(**spec))

    assert because in conflict.because
    assert advice in conflict.try_
    assert all(fact.source for fact in conflict.between)
    assert conflict.change


@pytest.mark.parametrize(
    ("gpus", "os", "spec", "because", "advice"),
    [
        # The archive drops a release when it publishes the next.
        *(
            (["H100 PCIe"], "ubuntu-24.04", {"driver": driver}, "is not known", advice)
            for driver in ("auto", "580", "580.95.05")
            for advice in ("apt-cache madison nvidia-utils-580-server", f"driver: {DRIVER}", "source nvidia")
        ),
        (["H100 PCIe"], "ubuntu-22.04", {}, "Ubuntu 24.04", "inventory"),
        *(
            (["T4"], os, {"cuda": "12.9"}, "source: ubuntu does not support", "")
            for os in ("debian-12", "rocky-9", "ubuntu-20.04")
        ),
        (["B200"], "ubuntu-24.04", {}, "not known to hold the NVLink subnet manager", "source nvidia"),
        (["T4"], "ubuntu-24.04", {"driver_extra": ("video",)}, "not known", ""),
    ],
)
def test_set_that_ubuntus_archive_cannot_give_is_rejected_with_a_change(gpus, os, spec, because, advice):
    conflict = refusal(gpus, os, spec=of_ubuntu(**spec))

    assert because in conflict.because
    assert advice in conflict.try_


@pytest.mark.parametrize(("os", "spec"), [("debian-12", of_debian()), ("ubuntu-24.04", of_ubuntu())])
def test_architecture_missing_from_the_archive_is_rejected(os, spec):
    assert "for sbsa" in refusal(["H100 PCIe"], os, arch="sbsa", spec=spec).because


def test_change_to_nvidia_drops_the_revision_of_ubuntu():
    """NVIDIA's repository has no package of that revision."""
    assert refusal(["B200"], "ubuntu-24.04", spec=of_ubuntu()).change["driver"] != DRIVER


def test_debian_set_is_what_the_archive_holds():
    found = answer(["RTX 3090"], "debian-12", spec=of_debian())

    assert found.source == "debian"
    assert (found.driver.version, found.driver.kernel_module) == (DEBIAN_12.driver, "proprietary")
    assert found.cuda == DEBIAN_12.cuda
    assert (found.cudnn, found.nccl, found.container_toolkit) == (None, None, None)
    omitted = {reason.component for reason in found.reasons if reason.because.startswith("omitted")}
    assert omitted == {"cudnn", "nccl", "container_toolkit"}
    (why,) = [reason.because for reason in found.reasons if reason.component == "driver"]
    assert "NVIDIA ended it (2026-06)" in why
    assert "Debian's security team updates it" in why


def test_debian_container_toolkit_comes_from_its_own_repository_if_requested():
    """It depends on no driver package, so the two sources do not mix."""
    found = debian_plan(container_toolkit="1.18.1")

    assert [row["name"] for row in found.repositories] == ["nvidia-container-toolkit"]
    assert len(found.components["container_toolkit"]["packages"]) == 4


def test_a_tool_of_debians_archive_is_not_held():
    """g++ may move with the system."""
    assert debian_plan().components["cuda"]["holds"] == ["nvidia-cuda-toolkit"]


def test_debian_release_published_later_is_stated_with_its_revision():
    found = debian_plan(driver="535.400.01-0+deb12u1")

    assert found.components["driver"]["packages"][0]["spec"] == "nvidia-kernel-dkms=535.400.01-0+deb12u1"
    assert found.expected["driver_version"] == "535.400.01"


def test_ubuntu_plan_without_cuda_adds_no_repository_with_drivers():
    spec = of_ubuntu(cuda="none", cudnn="none", nccl="none", container_toolkit="none")

    assert asked.planned(spec, "ubuntu-24.04", "h100-pcie-x2").repositories == ()


def test_ubuntu_plan_holds_the_kernel_with_the_driver():
    """The modules are Canonical's, signed for Secure Boot. Without a hold a kernel would boot without its module."""
    found = ubuntu_plan()

    assert found.components["driver"]["holds"] == names(found, "driver")
    assert any("signed by Canonical" in reason.because for reason in (*found.stack.reasons, *found.reasons))
    assert found.kernel_lock == "hold"
    assert found.order[-1] == "kernel_lock"
    assert any("held with the driver" in reason.because for reason in found.reasons)


@pytest.mark.parametrize(
    "kernel", ["6.8.0-106-generic", "6.8.0-1034-aws", "6.8.0-1031-azure", "6.8.0-1035-gcp", "6.8.0-1032-nvidia"]
)
def test_ubuntu_modules_are_those_of_the_running_kernel(kernel):
    assert ubuntu_plan(kernel=kernel).kernel_modules == {
        "pattern": "linux-modules-nvidia-580-server-open-{kernel}",
        "packages": [f"linux-modules-nvidia-580-server-open-{kernel}"],
    }


def test_ubuntu_modules_for_a_kernel_below_a_container_name_no_package():
    assert ubuntu_plan(stand_ins=("kernel",)).kernel_modules["packages"] == []


def test_ubuntu_proprietary_modules_have_names_without_open():
    found = ubuntu_plan("v100-sxm2-x8")

    assert names(found, "driver")[0] == "nvidia-headless-no-dkms-580-server"
    assert found.kernel_modules["pattern"] == "linux-modules-nvidia-580-server-{kernel}"


def test_other_sources_hold_no_kernel():
    found = asked.planned("", "ubuntu-24.04", "h100-pcie-x2")

    assert not found.kernel_modules
    assert not found.kernel_lock


def test_packages_of_ubuntus_archive_are_unconfirmed():
    found = ubuntu_plan("h100-sxm5-x8")

    unconfirmed = {row.spec for row in found.unconfirmed if row.source == "ubuntu-archive"}
    assert {f"nvidia-utils-580-server={DRIVER}", f"nvidia-fabricmanager-580={DRIVER}"} <= unconfirmed


def test_ubuntu_archive_has_a_driver_for_gpus_that_nvidias_directory_dropped():
    found = answer(["V100"], "ubuntu-26.04", spec=of_ubuntu(driver="580.95.05-0ubuntu0.26.04.1"))

    assert (found.driver.version, found.driver.kernel_module) == ("580.95.05", "proprietary")
    # The toolkits of that folder are too new for the GPU.
    assert found.cuda is None


def test_ubuntu_branch_that_was_not_seen_in_the_archive_is_unconfirmed():
    found = answer(["H100 PCIe"], "ubuntu-24.04", spec=of_ubuntu(driver="570.172.08-0ubuntu0.24.04.1"))

    assert any("branch 570" in row.because and not row.confirmed for row in found.reasons if row.rule == "R22")


def test_component_that_ubuntus_archive_is_not_known_to_hold_is_omitted():
    found = answer(["T4"], "ubuntu-24.04", spec=of_ubuntu(nvidia_modprobe="auto"))

    assert any("nvidia-modprobe" in row.because and "omitted" in row.because for row in found.reasons)


def test_lock_keeps_the_source_and_gives_the_same_plan():
    facts = host("ubuntu-24.04", "h100-pcie-x2")
    debian = host("debian-12", "rtx3090-x2")

    assert plan(reread(of_ubuntu(), facts), host="node01") == plan(lock(of_ubuntu(), [facts]), host="node01")
    assert reread(of_debian(), debian).groups == lock(of_debian(), [debian]).groups
    assert "\n      source: debian\n" in write_lock(lock(of_debian(), [debian]))
    assert "\n      source:" not in write_lock(lock(StackSpec(source="nvidia"), [debian]))


def test_ubuntu_plan_as_text_names_the_modules():
    text = plan_text(ubuntu_plan())

    assert "linux-modules-nvidia-580-server-open-6.8.0-106-generic" in text
    assert "the flavor of the host's kernel metapackage" in text
    assert "noble" in text


def test_every_system_of_the_ubuntu_table_is_an_ubuntu():
    assert {row.os for row in ubuntu().systems} == {"ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"}
