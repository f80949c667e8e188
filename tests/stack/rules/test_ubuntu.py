"""Ubuntu's own archive as the source of the driver: its packages are planned for the kernel, the rest is NVIDIA's."""

import pytest

from gpucheck.knowledge.archives import ubuntu
from gpucheck.stack import Refusal, StackSet, StackSpec, resolve
from gpucheck.stack.common import lock_common
from gpucheck.stack.lock import Lock, lock, read_lock, write_lock
from gpucheck.stack.plan import plan
from gpucheck.stack.text import plan_text
from tests.stack import asked
from tests.stack.hosts import host

DRIVER = "580.95.05-0ubuntu0.24.04.1"


def spec(**values):
    return StackSpec(**{"source": "ubuntu", "driver": DRIVER, **values})


def refused(gpus, os="ubuntu-24.04", arch=None, **values):
    found = resolve(gpus, os, arch, spec=spec(**values))
    assert isinstance(found, Refusal), found
    return found.conflicts[0]


def planned(gpus="h100-pcie-x2", system="ubuntu-24.04", kernel=None, **values):
    return asked.planned(spec(**values), system, gpus, **({"kernel": kernel} if kernel else {}))


def names(found, part):
    return [row["name"] for row in found.components[part]["packages"]]


def test_the_driver_is_that_of_the_archive_and_all_else_is_nvidias():
    found = planned()

    assert found.stack.source == "ubuntu"
    assert names(found, "driver") == [
        "nvidia-headless-no-dkms-580-server-open",
        "libnvidia-compute-580-server",
        "nvidia-compute-utils-580-server",
        "nvidia-utils-580-server",
    ]
    assert {row["version"] for row in found.components["driver"]["packages"]} == {DRIVER}
    assert found.components["driver"]["holds"] == names(found, "driver")
    assert names(found, "cuda")[0].startswith("cuda-toolkit-")
    assert found.stack.cudnn
    assert found.stack.nccl
    assert [row["name"] for row in found.repositories] == ["nvidia-cuda", "nvidia-container-toolkit"]
    assert found.archive == {"suite": "noble", "components": ["restricted", "multiverse"], "distribution": "ubuntu"}


def test_without_cuda_no_repository_of_nvidia_with_drivers_is_added():
    found = planned(cuda="none", cudnn="none", nccl="none", container_toolkit="none")

    assert found.repositories == ()


def test_nothing_is_built_on_the_host():
    """Neither headers nor a compiler nor DKMS: the modules are Canonical's, signed for Secure Boot."""
    found = planned()

    assert (found.headers, found.compilers) == ((), ())
    assert not any("dkms" in name and "no-dkms" not in name for name in names(found, "driver"))
    assert any("signed by Canonical" in reason.because for reason in (*found.stack.reasons, *found.reasons))


@pytest.mark.parametrize(
    "kernel", ["6.8.0-106-generic", "6.8.0-1034-aws", "6.8.0-1031-azure", "6.8.0-1035-gcp", "6.8.0-1032-nvidia"]
)
def test_the_modules_are_those_of_the_running_kernel_and_of_its_flavor(kernel):
    modules = planned(kernel=kernel).kernel_modules

    assert modules == {
        "pattern": "linux-modules-nvidia-580-server-open-{kernel}",
        "packages": [f"linux-modules-nvidia-580-server-open-{kernel}"],
    }


def test_a_kernel_that_belongs_to_another_machine_names_no_package():
    """A host in a container shows the kernel of the machine below it."""
    facts = host("ubuntu-24.04", "h100-pcie-x2", stand_ins=("kernel",))
    found = plan(lock(spec(), [facts]), host="node01")

    assert found.kernel_modules["packages"] == []


def test_proprietary_modules_have_names_without_open():
    found = planned("v100-sxm2-x8")

    assert names(found, "driver")[0] == "nvidia-headless-no-dkms-580-server"
    assert found.kernel_modules["pattern"] == "linux-modules-nvidia-580-server-{kernel}"


def test_the_kernel_is_held_with_its_modules_and_the_driver():
    """A kernel that moved by itself would boot without a module, as its modules want the driver's next release."""
    found = planned()

    assert found.kernel_lock == "hold"
    assert found.order[-1] == "kernel_lock"
    assert any("held with the driver" in reason.because for reason in found.reasons)


def test_other_sources_hold_no_kernel():
    made = plan(lock(StackSpec(), [host("ubuntu-24.04", "h100-pcie-x2")]), host="node01")

    assert "kernel_modules" not in type(made).__struct_fields__ or not made.kernel_modules
    assert not made.kernel_lock


def test_fabric_manager_has_the_drivers_version_and_the_branch_in_its_name():
    found = planned("h100-sxm5-x8")

    assert [row["spec"] for row in found.components["fabric_manager"]["packages"]] == [
        f"nvidia-fabricmanager-580={DRIVER}",
        f"libnvidia-nscq-580={DRIVER}",
    ]


def test_what_no_record_shows_is_said_package_by_package():
    found = planned("h100-sxm5-x8")
    said = {row.spec for row in found.unconfirmed if row.source == "ubuntu-archive"}

    assert {f"nvidia-utils-580-server={DRIVER}", f"nvidia-fabricmanager-580={DRIVER}"} <= said
    assert any(reason.source == "ubuntu-archive" and not reason.confirmed for reason in found.reasons)


@pytest.mark.parametrize("driver", ["auto", "580", "580.95.05"])
def test_a_driver_without_its_package_revision_is_refused_with_the_command_that_tells_it(driver):
    conflict = refused(["H100 PCIe"], driver=driver)

    assert "is not known" in conflict.because
    assert "apt-cache madison nvidia-utils-580-server" in conflict.try_
    assert "driver: 580.95.05-0ubuntu0.24.04.1" in conflict.try_
    assert "source nvidia" in conflict.try_


def test_a_revision_of_another_release_is_refused():
    conflict = refused(["H100 PCIe"], os="ubuntu-22.04")

    assert "Ubuntu 24.04" in conflict.because
    assert "inventory" in conflict.try_


@pytest.mark.parametrize("os", ["debian-12", "rocky-9", "ubuntu-20.04"])
def test_systems_whose_archive_is_not_known_are_refused(os):
    conflict = refused(["T4"], os, cuda="12.9")

    assert "source: ubuntu does not support" in conflict.because


def test_an_architecture_without_signed_modules_is_refused():
    assert "for sbsa" in refused(["H100 PCIe"], arch="sbsa").because


def test_boards_that_need_the_subnet_manager_are_refused_with_the_way_out():
    conflict = refused(["B200"])

    assert "not known to hold the NVLink subnet manager" in conflict.because
    assert conflict.change["source"] == "nvidia"


def test_the_way_out_leaves_ubuntus_revision_behind():
    """NVIDIA's repository has no package of that revision."""
    assert refused(["B200"]).change["driver"] != DRIVER


def test_gpus_that_nvidias_folder_of_a_new_ubuntu_has_left_get_a_driver():
    found = resolve(["V100"], "ubuntu-26.04", spec=spec(driver="580.95.05-0ubuntu0.26.04.1"))

    assert isinstance(found, StackSet), found
    assert (found.driver.version, found.driver.kernel_module) == ("580.95.05", "proprietary")
    # The toolkits of that folder are too new for the GPU.
    assert found.cuda is None


def test_a_branch_that_was_not_seen_in_the_archive_is_said_to_be_unconfirmed():
    found = resolve(["H100 PCIe"], "ubuntu-24.04", spec=spec(driver="570.172.08-0ubuntu0.24.04.1"))

    assert isinstance(found, StackSet), found
    assert any("branch 570" in row.because and not row.confirmed for row in found.reasons if row.rule == "R22")


@pytest.mark.parametrize("values", [{"nvidia_modprobe": "auto"}, {"driver_extra": ("video",)}])
def test_parts_that_the_archive_is_not_known_to_hold_are_not_taken_from_nvidia(values):
    found = resolve(["T4"], "ubuntu-24.04", spec=spec(**values))

    if isinstance(found, StackSet):
        assert any("nvidia-modprobe" in row.because and "omitted" in row.because for row in found.reasons)
    else:
        assert "not known" in found.conflicts[0].because


def test_the_lock_keeps_the_source_and_gives_the_same_plan():
    made = lock(spec(), [host("ubuntu-24.04", "h100-pcie-x2")])
    again = read_lock(write_lock(made), "stack.lock.yml")

    assert plan(again, host="node01") == plan(made, host="node01")
    common = lock_common(spec(), [host("ubuntu-24.04", "h100-pcie-x2"), host("ubuntu-24.04", "t4-x1", "node02")])
    assert isinstance(common, Lock), common
    assert {group.stack.driver.version for group in common.groups.values()} == {"580.95.05"}


def test_the_plan_as_text_names_the_modules_and_no_headers():
    text = plan_text(planned())

    assert "linux-modules-nvidia-580-server-open-6.8.0-106-generic" in text
    assert "the flavor of the host's kernel metapackage" in text
    assert "noble" in text


def test_every_system_of_the_table_is_an_ubuntu():
    assert {row.os for row in ubuntu().systems} == {"ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"}
