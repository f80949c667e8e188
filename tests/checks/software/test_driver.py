"""The driver and the GPUs of a host, by every way in which NVML can fail."""

import msgspec
import pytest

from gpucheck.checks.gpu import inventory
from gpucheck.checks.software import driver
from gpucheck.model import CRASHED, DEFECT, LATE, NOT_STARTED, DriverState, NvmlFailure, NvmlGap, Verdict
from tests.checks.judging import codes, judge
from tests.fakes import SYSTEM, facts
from tests.machines import LOADED, on_bus, p100, reading

CARDS = on_bus(p100(0), p100(1))
FILES = {"folders": {"/dev": ("nvidia0", "nvidia1", "nvidiactl")}}
PASSED_THROUGH = (CARDS[0], msgspec.structs.replace(CARDS[1], driver="vfio-pci"))
FOR_GUESTS = tuple(msgspec.structs.replace(card, driver="vfio-pci") for card in CARDS)
KEPLER = msgspec.structs.replace(CARDS[1], device_id="1288", class_id="030000", driver=None)
PAIR = "pair:0000:03:00.0-0000:04:00.0"
DOCKER = {"system": msgspec.structs.replace(SYSTEM, container="docker")}


OPEN = DriverState(installed_version="580.178.04", installed_flavour="open")


@pytest.mark.parametrize(
    ("returned", "state", "host", "verdict", "code", "cause", "confidence"),
    [
        (9, DriverState(), {}, "fail", "module-not-loaded", "driver-not-loaded", "certain"),
        (9, OPEN, {}, "fail", "installed-flavour-wrong", "module-flavour-wrong", "certain"),
        (9, LOADED, {}, "fail", "control-device-missing", "device-node-missing", "certain"),
        (9, LOADED, DOCKER, "fail", "control-device-missing-in-container", "device-node-missing", "certain"),
        (9, LOADED, FILES, "fail", "driver-unreachable", "device-node-missing", "likely"),
        (9, LOADED, DOCKER | FILES, "fail", "driver-unreachable-in-container", "device-node-missing", "likely"),
        (12, DriverState(), {}, "fail", "library-and-module-missing", "driver-not-loaded", "certain"),
        (12, DriverState(), DOCKER, "fail", "library-and-module-missing-in-container", "driver-not-loaded", "certain"),
        (12, LOADED, {}, "fail", "library-missing", None, None),
        (12, LOADED, DOCKER, "fail", "library-missing-in-container", "container-runtime", "likely"),
        (18, LOADED, DOCKER, "fail", "driver-versions-differ-in-container", "driver-mismatch", "certain"),
        (15, LOADED, {}, "fail", "nvml-gpu-lost", "gpu-lost", "certain"),
        (8, LOADED, {}, "fail", "power-cable-detached", None, None),
        (10, LOADED, {}, "fail", "interrupts-not-assigned", None, None),
        (CRASHED, LOADED, {}, "fail", "nvml-crashed", "wedged-driver", "possible"),
        (LATE, LOADED, {}, "fail", "nvml-unresponsive", "wedged-driver", "likely"),
        (DEFECT, LOADED, {}, "unknown", "nvml-query-defect", None, None),
        (NOT_STARTED, LOADED, {}, "unknown", "nvml-query-not-started", "host-resources", "likely"),
        (-99, LOADED, {}, "unknown", "nvml-failure-undefined", None, None),
        (4, LOADED, {}, "unknown", "device-files-denied", None, None),
        (999, LOADED, {}, "unknown", "nvml-failure-unexplained", None, None),
    ],
)
def test_each_way_that_nvml_fails_has_its_own_code(returned, state, host, verdict, code, cause, confidence):
    """NVML answers 9 in a container without device files too; the kernel shows whether the module is loaded."""
    failure = NvmlFailure(call="nvmlInit", code=returned, name=f"NVMLError_{returned}")

    (finding,) = driver.evaluate(facts(nvml=failure, driver=state, pci=CARDS, **{"folders": {"/dev": ()}} | host))

    assert (finding.verdict.value, finding.code) == (verdict, f"software.{code}")
    assert (finding.cause, finding.confidence) == (cause, confidence)
    assert f"nvmlInit: {returned}" in finding.evidence[0]
    assert "None" not in " ".join((*finding.evidence, finding.why, finding.fix, str(finding.seen)))


def refused(code, *subjects, call="nvmlDeviceGetHandleByIndex"):
    return tuple(NvmlGap(call=call, subject=subject, code=code, name=f"NVMLError_{code}") for subject in subjects)


def failed(code):
    return NvmlFailure(call="nvmlInit", code=code, name=f"NVMLError_{code}")


def without_version(code):
    gaps = refused(code, "host", call="nvmlSystemGetDriverVersion") if code else ()
    return msgspec.structs.replace(reading(p100(0)), driver_version=None, gaps=gaps)


WAITING = msgspec.structs.replace(LOADED, installed_version="595.91.07")
OTHER = msgspec.structs.replace(LOADED, loaded_version="570.10.01", installed_version="570.10.01")


@pytest.mark.parametrize(
    ("host", "found"),
    [
        # It still works; the next unattended restart changes the driver under the jobs.
        (facts(nvml=reading(p100(0)), driver=WAITING, pci=CARDS), [None, "software.driver-pending-reboot"]),
        # Also if NVML responds.
        (facts(nvml=reading(p100(0)), driver=OTHER, pci=CARDS), ["software.driver-versions-differ"]),
        # A version that NVML does not report is no mismatch.
        (facts(nvml=without_version(999), driver=LOADED, pci=CARDS), ["software.driver-version-error"]),
        (facts(nvml=without_version(DEFECT), driver=LOADED, pci=CARDS), ["software.driver-version-defect"]),
        (facts(nvml=without_version(None), driver=LOADED, pci=CARDS), ["software.driver-version-not-reported"]),
        # Nothing on the bus and no driver: there is nothing to prove, and nothing to repair.
        (facts(), ["software.no-gpu-no-driver"]),
        # A host that gives all its GPUs to virtual machines needs no driver; one that keeps a GPU does.
        *[(facts(nvml=failed(code), pci=FOR_GUESTS), ["gpu.all-passed-through"]) for code in (9, 12)],
        (facts(nvml=failed(9), pci=FOR_GUESTS, driver=OPEN), ["gpu.all-passed-through"]),
        (facts(nvml=failed(9), pci=PASSED_THROUGH), ["software.module-not-loaded"]),
        (facts(nvml=failed(18), pci=FOR_GUESTS, driver=LOADED), ["software.driver-versions-differ"]),
    ],
)
def test_versions_of_the_driver(host, found):
    assert codes(driver, host) == found


def inventory_of(*gpus, gaps=(), pci=CARDS, container=None):
    nvml = msgspec.structs.replace(reading(*gpus), gaps=gaps)
    return facts(nvml=nvml, pci=pci, system=msgspec.structs.replace(SYSTEM, container=container))


@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("subject", ["gpu:0000:04:00.0", "link:0000:04:00.0/3"])
def test_a_gpu_that_is_lost_in_the_middle_of_the_pass_fails(code, subject):
    """It gave its handle and its bus id, and then no call about it worked any more."""
    gaps = refused(code, subject, call="nvmlDeviceGetTotalEccErrors")
    (finding,) = judge(inventory, inventory_of(p100(0), p100(1), gaps=gaps))

    assert (finding.verdict, finding.subject, finding.cause) == (Verdict.FAIL, "gpu:0000:04:00.0", "gpu-lost")
    assert finding.confidence == "certain"
    assert f"nvmlDeviceGetTotalEccErrors: {code} NVMLError_{code}" in finding.evidence


@pytest.mark.parametrize(
    ("host", "found"),
    [
        *[(inventory_of(p100(0), gaps=refused(code, "gpu index 1")), ["gpu.not-opened"]) for code in (15, 999)],
        (inventory_of(p100(0), gaps=refused(8, "gpu index 1")), ["gpu.power-cable-missing"]),
        (inventory_of(p100(0), gaps=refused(4, "gpu index 1")), ["gpu.handle-denied"]),
        (inventory_of(p100(0), gaps=refused(13, "gpu index 1")), ["gpu.handle-call-missing"]),
        (inventory_of(p100(0), gaps=refused(DEFECT, "gpu index 1")), ["nvml.result-unreadable"]),
        # Also one that a container was given; without /sys it is in no other list.
        (inventory_of(p100(0), gaps=refused(15, "gpu index 1"), container="docker"), ["gpu.not-opened"]),
        (inventory_of(p100(0), gaps=refused(15, "gpu index 1"), pci=()), ["gpu.pci-devices-hidden", "gpu.not-opened"]),
        # What a container was not given, and what a virtual machine has, is not lost.
        (inventory_of(p100(0), container="docker"), [None, "session.container-with-some-gpus"]),
        (inventory_of(p100(0), pci=PASSED_THROUGH), [None, "gpu.some-passed-through"]),
        (inventory_of(p100(0)), ["gpu.not-initialized"]),
        # A Kepler display card next to it: branch 470 was the last for it, and this driver binds it no more.
        (inventory_of(p100(0), pci=(CARDS[0], KEPLER)), ["gpu.driver-too-new"]),
        (
            inventory_of(p100(0), pci=(CARDS[0], msgspec.structs.replace(KEPLER, driver="nvidia"))),
            ["gpu.not-initialized"],
        ),
        # NVML alone does not show whether a GPU is missing.
        (inventory_of(p100(0), p100(1), pci=()), ["gpu.pci-devices-hidden"]),
        # Which one of a pair is not guessed.
        (
            inventory_of(p100(0), p100(1), gaps=refused(15, PAIR, call="nvmlDeviceGetP2PStatus")),
            ["gpu.one-of-pair-lost"],
        ),
    ],
)
def test_gpus_that_the_bus_or_nvml_alone_shows(host, found):
    assert codes(inventory, host) == found


@pytest.mark.parametrize(("code", "confidence"), [(15, "certain"), (999, "likely")])
def test_a_refused_handle_is_the_gpu_that_the_bus_shows_and_nvml_lacks(code, confidence):
    (finding,) = judge(inventory, inventory_of(p100(0), gaps=refused(code, "gpu index 1")))

    assert (finding.subject, finding.confidence) == ("gpu:0000:04:00.0", confidence)
