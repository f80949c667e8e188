import msgspec
import pytest

from gpucheck.checks import driver
from gpucheck.model import DriverState, NvmlFailure, Verdict
from tests.fakes import FakeHost
from tests.machines import LOADED, on_bus, p100, reading

CARDS = on_bus(p100(0), p100(1))


def judge(host):
    return list(driver.evaluate(driver.probe(host)))


def test_loaded_and_equal_passes():
    (finding,) = judge(FakeHost(nvml_=reading(p100(0)), driver_=LOADED, pci_=CARDS))

    assert (finding.verdict, finding.seen) == (Verdict.PASS, "580.178.04")


@pytest.mark.parametrize(
    ("code", "state", "verdict", "cause"),
    [
        (9, DriverState(), Verdict.FAIL, "driver-not-loaded"),
        (9, DriverState(nouveau_loaded=True), Verdict.FAIL, "nouveau-loaded"),
        (12, DriverState(), Verdict.FAIL, "driver-not-loaded"),
        (18, LOADED, Verdict.FAIL, "driver-mismatch"),
        (15, LOADED, Verdict.FAIL, "gpu-lost"),
        (-1, LOADED, Verdict.FAIL, "wedged-driver"),
        (-2, LOADED, Verdict.FAIL, "wedged-driver"),
        (4, LOADED, Verdict.UNKNOWN, None),
        (999, LOADED, Verdict.UNKNOWN, None),
    ],
)
def test_each_way_that_nvml_fails_has_its_own_cause(code, state, verdict, cause):
    """The same "NVML does not work" needs five different remedies."""
    failure = NvmlFailure(call="nvmlInit", code=code, name=f"NVMLError_{code}")

    (finding,) = judge(FakeHost(nvml_=failure, driver_=state, pci_=CARDS))

    assert (finding.verdict, finding.cause) == (verdict, cause)
    assert f"nvmlInit: {code}" in finding.evidence[0]


def test_a_machine_without_gpus_is_not_broken_but_unknown():
    """Nothing on the bus and no driver: there is nothing to prove, and nothing to repair."""
    (finding,) = judge(FakeHost())

    assert finding.verdict is Verdict.UNKNOWN


def test_a_driver_waiting_for_a_reboot_is_a_warning():
    """It still works; the next unattended restart changes the driver under the jobs."""
    state = msgspec.structs.replace(LOADED, installed_version="595.91.07")

    first, second = judge(FakeHost(nvml_=reading(p100(0)), driver_=state, pci_=CARDS))

    assert first.verdict is Verdict.PASS
    assert (second.verdict, second.cause) == (Verdict.WARN, "driver-mismatch")
    assert "595.91.07" in str(second.seen)


def test_module_and_library_of_two_versions_fail_even_when_nvml_answers():
    state = msgspec.structs.replace(LOADED, loaded_version="570.10.01", installed_version="570.10.01")

    (finding,) = judge(FakeHost(nvml_=reading(p100(0)), driver_=state, pci_=CARDS))

    assert (finding.verdict, finding.cause) == (Verdict.FAIL, "driver-mismatch")
