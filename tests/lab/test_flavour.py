"""An apt host changes from the open to the proprietary kernel modules and back, with GPUs that take both."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.e2e import Run
from tests.lab.own_lab import OwnLab

pytestmark = pytest.mark.more_labs

LOADED = "/run/gpucheck-simulator/root/proc/driver/nvidia/version"
# The H100s of a DGX: Hopper takes both.
OPTIONS = ("--light", "1", "--profile", "hgx-h100-x8")
SUBNET = os.environ.get("GPUCHECK_TEST_FLAVOUR_SUBNET", "10.213.53.0/24")
LAB = OwnLab("gpucheck-flavour", SUBNET, options=OPTIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    with LAB.fresh():
        yield tmp_path_factory.mktemp("flavour")


def provision(folder: Path, **spec: str) -> Run:
    """Provision with these values in the specification, without the verification."""
    LAB.specify(**spec)
    return LAB.provision(folder, "--skip-tags", "verify", preflight_minimum_free_gib=1)


def loaded() -> str:
    return "open" if "Open Kernel Module" in LAB.on_host("cat", LOADED) else "proprietary"


def module_packages() -> list[str]:
    shown = LAB.on_host("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n", "nvidia-dkms-*")
    return [line.split()[1] for line in shown.splitlines() if line.startswith(("hi", "ii"))]


def test_the_open_modules_are_what_these_gpus_get(folder):
    run = provision(folder, kernel_module="auto")

    assert run.status == 0, run.text
    assert (loaded(), module_packages()) == ("open", ["nvidia-dkms-580-open"])


@pytest.mark.fault("apt's transaction", "a dependency brings a kernel along")
def test_a_kernel_that_comes_along_stops_the_host_before_its_reboot(folder):
    """Afterwards it is there with headers or it goes: a host does not boot into a kernel without a module."""
    hook, kernel = "/etc/apt/apt.conf.d/99-site", "/lib/modules/6.9.0-1-generic"
    boots = LAB.on_host("cat", "/var/lib/gpucheck-lab/boots")
    brings = f'DPkg::Post-Invoke {{"mkdir -p {kernel}; touch {kernel}/modules.dep";}};'
    LAB.on_host("sh", "-c", f"echo '{brings}' >{hook}")
    try:
        run = provision(folder, cudnn="none", driver="580.95.05")
        assert "installed the unplanned kernel 6.9.0-1-generic" in run.plain
        assert LAB.on_host("cat", "/var/lib/gpucheck-lab/boots") == boots
    finally:
        LAB.on_host("rm", "-r", hook)

    again = provision(folder, driver="580.95.05")
    assert "no package source offers linux-headers-6.9.0-1-generic" in again.plain

    LAB.on_host("rm", "-r", kernel)
    assert provision(folder, driver="auto", cudnn="auto").status == 0


@pytest.mark.parametrize(("flavour", "package"), [("proprietary", "nvidia-dkms-580"), ("open", "nvidia-dkms-580-open")])
def test_a_change_of_mind_brings_the_other_modules_in_and_leaves_nothing_of_the_first(folder, flavour, package):
    run = provision(folder, kernel_module=flavour)

    assert run.status == 0, run.text
    assert (loaded(), module_packages()) == (flavour, [package])
    assert package in LAB.on_host("apt-mark", "showhold").split()
    assert provision(folder, kernel_module=flavour).recap("light-001")["changed"] == 0
