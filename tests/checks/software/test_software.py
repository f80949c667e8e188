"""Libraries of the loader, flavor of the kernel module, and the next boot: what was read of a host, and the codes."""

import pytest
from msgspec.structs import replace

from gpucheck.model import DkmsModule, DriverState, InstalledKernel, LoaderLibrary
from tests.checks.judging import codes, judge
from tests.fakes import facts
from tests.machines import LOADED, on_bus, p100, reading


def libraries(*paths, source="ld.so.cache", **python):
    found = (LoaderLibrary(soname=path.rpartition("/")[2], path=path, source=source) for path in paths)
    return facts(libraries=tuple(found), python=python)


def flavoured(state, device="15f8", **more):
    pci = (replace(one, device_id=device, **more) for one in on_bus(p100(0)))
    return facts(pci=tuple(pci), driver=DriverState(**state))


def loaded(flavour):
    return {"loaded_version": LOADED.loaded_version, "loaded_flavour": flavour}


RUNNING = InstalledKernel(release="5.15.0-97", running=True, headers=True, nvidia="580.178.04")
NEXT = InstalledKernel(release="5.15.0-113", running=False, headers=False)
OTHER = replace(NEXT, nvidia="570.1")
ADDED = DkmsModule(name="nvidia", version="580.178.04", state="added")
INSTALLED = replace(ADDED, state="installed", kernel="5.15.0-97")
FILES_ADDED = DkmsModule(name="nvidia-fs", version="2.22.3", state="added")
NEW = {"installed_version": "580.95", "installed_flavour": "proprietary"}
OVERRIDING = {"source": "LD_LIBRARY_PATH"}


def kernels(*found, dkms=(), driver=LOADED, secure_boot=None, **more):
    return facts(kernels=found, dkms=dkms, driver=driver, secure_boot=secure_boot, **more)


CARDS = on_bus(p100(0))


def booted(secure_boot, version, nouveau=False, pci=CARDS):
    driver = DriverState(installed_version="580.178.04", loaded_version=version, nouveau_loaded=nouveau)
    return kernels(RUNNING, driver=driver, secure_boot=secure_boot, pci=pci)


@pytest.mark.parametrize(
    ("check", "host", "found"),
    [
        # Two majors are two libraries; other checks ask for other ones.
        ("loader", libraries(), ["no-cuda-libraries"]),
        ("loader", libraries("/usr/local/cuda/lib64/libcudart.so.12", torch="2.13.0"), [None]),
        ("loader", libraries("/a/libcudart.so.12", "/b/libcudart.so.13"), [None]),
        ("loader", libraries("/a/libother.so.2", "/b/libother.so.2"), ["no-cuda-libraries"]),
        ("loader", libraries("/opt/nccl/libnccl.so.2", **OVERRIDING), [None]),
        ("loader", facts(libraries=None), ["loader-cache-unreadable"]),
        # The flavor of another file is not that of the loaded module.
        ("module-flavour", flavoured({"loaded_version": "550.163.01"}), ["module-flavour-unknown"]),
        ("module-flavour", flavoured({"loaded_version": "550.163.01", **NEW}), ["module-flavour-unknown"]),
        ("module-flavour", flavoured({"loaded_version": "580.95", **NEW}), [None]),
        ("module-flavour", flavoured(NEW), [None]),
        ("module-flavour", flavoured({}), ["no-driver-module"]),
        # Pascal needs the proprietary modules, Blackwell the open ones.
        ("module-flavour", flavoured(loaded("proprietary"), "2901"), ["module-flavour-wrong"]),
        ("module-flavour", flavoured(loaded("open"), "2330"), [None]),
        # A kernel without the module is named before the reboot; afterwards it is too late.
        ("next-boot", kernels(RUNNING, NEXT), ["kernel-without-headers"]),
        ("next-boot", kernels(RUNNING, replace(NEXT, headers=True)), ["kernel-without-module"]),
        # Its libraries are those of the loaded driver; else they and the module wait for this boot.
        ("next-boot", kernels(RUNNING, OTHER, nvml=reading(p100(0))), ["kernel-with-other-module"]),
        ("next-boot", kernels(RUNNING, OTHER), [None]),
        ("next-boot", kernels(replace(RUNNING, nvidia=OTHER.nvidia), OTHER, nvml=reading(p100(0))), [None]),
        ("next-boot", kernels(RUNNING, dkms=(ADDED,)), ["dkms-not-installed"]),
        (
            "next-boot",
            kernels(replace(RUNNING, headers=False), dkms=(replace(ADDED, state="installed"),)),
            ["headers-not-installed"],
        ),
        # What an upgrade left behind in the tree of DKMS (negativo17/nvidia-driver#56) is no module that is missing.
        ("next-boot", kernels(RUNNING, dkms=(INSTALLED, replace(ADDED, version="550.163.01"))), [None]),
        ("next-boot", kernels(RUNNING, dkms=(INSTALLED, replace(ADDED, version="1000.1"))), ["dkms-not-installed"]),
        ("next-boot", kernels(RUNNING, dkms=(INSTALLED, FILES_ADDED)), ["dkms-not-installed"]),
        ("next-boot", kernels(RUNNING, dkms=(DkmsModule(name="zfs", version="2.2", state="added"),)), [None]),
        ("next-boot", kernels(), ["no-kernels-listed"]),
        # No enrolled key signed it.
        ("next-boot", booted(False, None), [None, None]),
        ("next-boot", booted(True, None), [None, "secure-boot-rejects"]),
        # It is not why nvidia is not loaded where no GPU waits for it.
        ("next-boot", booted(True, None, nouveau=True), [None, "module-not-awaited"]),
        ("next-boot", booted(True, None, pci=()), [None, "module-not-awaited"]),
        ("next-boot", booted(True, None, pci=(replace(CARDS[0], driver="vfio-pci"),)), [None, "module-not-awaited"]),
    ],
)
def test_codes_of_a_host(check, host, found):
    assert codes(check, host) == [code and f"software.{code}" for code in found]


def test_the_flavour_does_not_matter_to_a_gpu_of_a_virtual_machine():
    assert codes("module-flavour", flavoured(NEW, "2901", driver="vfio-pci")) == ["gpu.some-passed-through"]


def test_kernel_is_named_with_what_it_has():
    (finding,) = judge("next-boot", kernels(RUNNING, NEXT))
    (running,) = judge("next-boot", kernels(RUNNING, dkms=(ADDED,)))

    assert (finding.values["kernel"], running.values["kernel"]) == ("5.15.0-113", "5.15.0-97")
    assert finding.evidence == (
        "5.15.0-97 (running): nvidia module 580.178.04, headers installed",
        "5.15.0-113: nvidia module not found, headers missing",
        "Secure Boot: not reported",
    )
