"""Kernels without the NVIDIA module, and Secure Boot."""

import msgspec
import pytest

from gpucheck.checks.software import next_boot
from gpucheck.model import DkmsModule, DriverState, InstalledKernel
from tests.checks.judging import FAIL, PASS, SKIP, WARN
from tests.fakes import facts
from tests.machines import LOADED

RUNNING = InstalledKernel(release="5.15.0-97", running=True, headers=True, nvidia="580.178.04")
NEXT = InstalledKernel(release="5.15.0-113", running=False, headers=False)
ADDED = DkmsModule(name="nvidia", version="580.178.04", state="added")
INSTALLED = msgspec.structs.replace(ADDED, state="installed")


@pytest.mark.parametrize(
    ("kernels", "dkms", "verdict", "code", "kernel"),
    [
        ((RUNNING,), (), PASS, None, None),
        ((RUNNING, NEXT), (), WARN, "kernel-without-headers", "5.15.0-113"),
        ((RUNNING, msgspec.structs.replace(NEXT, headers=True)), (), WARN, "kernel-without-module", "5.15.0-113"),
        ((RUNNING,), (ADDED,), WARN, "dkms-not-installed", "5.15.0-97"),
        ((msgspec.structs.replace(RUNNING, headers=False),), (INSTALLED,), WARN, "headers-not-installed", "5.15.0-97"),
        ((RUNNING,), (DkmsModule(name="zfs", version="2.2", state="added"),), PASS, None, None),
        ((), (), SKIP, "no-kernels-listed", None),
    ],
)
def test_a_kernel_without_the_module_is_named_before_the_reboot(kernels, dkms, verdict, code, kernel):
    """Afterwards it is too late."""
    (finding,) = next_boot.evaluate(facts(kernels=kernels, dkms=dkms, driver=LOADED, secure_boot=None))

    assert (finding.verdict, finding.code) == (verdict, code and f"software.{code}")
    assert finding.values.get("kernel") == kernel


@pytest.mark.parametrize(
    ("secure_boot", "loaded", "verdict"), [(True, None, FAIL), (True, "580.178.04", PASS), (False, None, PASS)]
)
def test_secure_boot_with_a_module_that_does_not_load_is_a_fault(secure_boot, loaded, verdict):
    """No enrolled key signed it."""
    driver = DriverState(installed_version="580.178.04", loaded_version=loaded)

    *_, finding = next_boot.evaluate(facts(kernels=(RUNNING,), driver=driver, secure_boot=secure_boot))

    assert finding.verdict is verdict


def test_what_a_kernel_has_is_written_without_python():
    """No None, no True."""
    (finding,) = next_boot.evaluate(facts(kernels=(RUNNING, NEXT), driver=LOADED, secure_boot=None))

    assert finding.evidence == (
        "5.15.0-97 (running): nvidia module 580.178.04, headers installed",
        "5.15.0-113: nvidia module not found, headers missing",
        "Secure Boot: not reported",
    )
