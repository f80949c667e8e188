import msgspec
import pytest

from gpucheck.checks.gpu import inventory
from gpucheck.checks.software import driver
from gpucheck.model import CRASHED, DEFECT, LATE, NOT_STARTED, DriverState, NvmlFailure, NvmlGap, Verdict
from tests.checks.judging import judge
from tests.fakes import SYSTEM, facts
from tests.machines import LOADED, on_bus, p100, reading

CARDS = on_bus(p100(0), p100(1))
FILES = {"folders": {"/dev": ("nvidia0", "nvidia1", "nvidiactl")}}
DOCKER = {"system": msgspec.structs.replace(SYSTEM, container="docker")}


def test_loaded_and_equal_passes():
    (finding,) = driver.evaluate(facts(nvml=reading(p100(0)), driver=LOADED, pci=CARDS))

    assert (finding.verdict, finding.seen) == (Verdict.PASS, "580.178.04")


OPEN = DriverState(installed_version="580.178.04", installed_flavour="open")


@pytest.mark.parametrize(
    ("returned", "state", "host", "verdict", "code", "cause", "confidence"),
    [
        (9, DriverState(), {}, "fail", "module-not-loaded", "driver-not-loaded", "certain"),
        (9, DriverState(nouveau_loaded=True), {}, "fail", "nouveau-bound", "nouveau-loaded", "certain"),
        (9, OPEN, {}, "fail", "installed-flavour-wrong", "module-flavour-wrong", "certain"),
        (9, LOADED, {}, "fail", "control-device-missing", "device-node-missing", "certain"),
        (9, LOADED, DOCKER, "fail", "control-device-missing-in-container", "device-node-missing", "certain"),
        (9, LOADED, FILES, "fail", "driver-unreachable", "device-node-missing", "likely"),
        (9, LOADED, DOCKER | FILES, "fail", "driver-unreachable-in-container", "device-node-missing", "likely"),
        (12, DriverState(), {}, "fail", "library-and-module-missing", "driver-not-loaded", "certain"),
        (12, DriverState(), DOCKER, "fail", "library-and-module-missing-in-container", "driver-not-loaded", "certain"),
        (12, LOADED, {}, "fail", "library-missing", None, None),
        (12, LOADED, DOCKER, "fail", "library-missing-in-container", "container-runtime", "likely"),
        (18, LOADED, {}, "fail", "driver-versions-differ", "driver-mismatch", "certain"),
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


def test_a_machine_without_gpus_is_not_broken_but_unknown():
    """Nothing on the bus and no driver: there is nothing to prove, and nothing to repair."""
    (finding,) = driver.evaluate(facts())

    assert (finding.verdict, finding.code) == (Verdict.UNKNOWN, "software.no-gpu-no-driver")


@pytest.mark.parametrize(
    ("returned", "code"),
    [(999, "driver-version-error"), (DEFECT, "driver-version-defect"), (None, "driver-version-not-reported")],
)
def test_a_driver_version_that_nvml_does_not_report_is_no_mismatch(returned, code):
    gaps = refused(returned, "host", call="nvmlSystemGetDriverVersion") if returned else ()
    nvml = msgspec.structs.replace(reading(p100(0)), driver_version=None, gaps=gaps)
    (finding,) = driver.evaluate(facts(nvml=nvml, driver=LOADED, pci=CARDS))

    assert (finding.verdict, finding.cause, finding.code) == (Verdict.UNKNOWN, None, f"software.{code}")


def test_a_driver_waiting_for_a_reboot_is_a_warning():
    """It still works; the next unattended restart changes the driver under the jobs."""
    state = msgspec.structs.replace(LOADED, installed_version="595.91.07")

    first, second = driver.evaluate(facts(nvml=reading(p100(0)), driver=state, pci=CARDS))

    assert first.verdict is Verdict.PASS
    assert (second.verdict, second.cause) == (Verdict.WARN, "driver-mismatch")
    assert second.code == "software.driver-pending-reboot"


def test_module_and_library_of_two_versions_fail_even_when_nvml_answers():
    state = msgspec.structs.replace(LOADED, loaded_version="570.10.01", installed_version="570.10.01")

    (finding,) = driver.evaluate(facts(nvml=reading(p100(0)), driver=state, pci=CARDS))

    assert (finding.verdict, finding.cause) == (Verdict.FAIL, "driver-mismatch")


def refused(code, *subjects, call="nvmlDeviceGetHandleByIndex"):
    return tuple(NvmlGap(call=call, subject=subject, code=code, name=f"NVMLError_{code}") for subject in subjects)


def inventory_of(*gpus, gaps=(), pci=CARDS, container=None):
    nvml = msgspec.structs.replace(reading(*gpus), gaps=gaps)
    system = msgspec.structs.replace(SYSTEM, container=container)
    return judge(inventory, facts(nvml=nvml, pci=pci, system=system))


@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("subject", ["gpu:0000:04:00.0", "link:0000:04:00.0/3"])
def test_a_gpu_that_is_lost_in_the_middle_of_the_pass_fails(code, subject):
    """It gave its handle and its bus id, and then no call about it worked any more."""
    gaps = refused(code, subject, call="nvmlDeviceGetTotalEccErrors")
    (finding,) = inventory_of(p100(0), p100(1), gaps=gaps)

    assert (finding.verdict, finding.subject, finding.cause) == (Verdict.FAIL, "gpu:0000:04:00.0", "gpu-lost")
    assert finding.confidence == "certain"
    assert f"nvmlDeviceGetTotalEccErrors: {code} NVMLError_{code}" in finding.evidence


@pytest.mark.parametrize(
    ("code", "verdict", "confidence"),
    [
        (15, Verdict.FAIL, "certain"),
        (999, Verdict.FAIL, "likely"),
        (8, Verdict.FAIL, "certain"),
        (4, Verdict.UNKNOWN, None),
        (13, Verdict.UNKNOWN, None),
        (DEFECT, Verdict.UNKNOWN, None),
    ],
)
def test_a_refused_handle_is_the_gpu_that_the_bus_shows_and_nvml_lacks(code, verdict, confidence):
    (finding,) = inventory_of(p100(0), gaps=refused(code, "gpu index 1"))

    assert (finding.verdict, finding.subject, finding.confidence) == (verdict, "gpu:0000:04:00.0", confidence)


def test_a_refused_handle_without_sysfs_is_told_by_its_index():
    """In a container without /sys it is in no other list."""
    findings = inventory_of(p100(0), gaps=refused(15, "gpu index 1"), pci=())

    assert [(f.verdict, f.cause) for f in findings if f.cause] == [(Verdict.FAIL, "gpu-lost")]
    assert "index 1" in str(findings[-1].seen)


def test_a_lost_gpu_of_a_pair_is_not_guessed():
    gaps = refused(15, "pair:0000:03:00.0-0000:04:00.0", call="nvmlDeviceGetP2PStatus")
    (finding,) = inventory_of(p100(0), p100(1), gaps=gaps)

    assert (finding.subject, finding.confidence) == ("pair:0000:03:00.0-0000:04:00.0", "likely")


def test_gpus_that_a_container_was_not_given_are_not_lost():
    seen, hidden = inventory_of(p100(0), container="docker")

    assert (seen.verdict, hidden.verdict) == (Verdict.PASS, Verdict.SKIP)


def test_a_gpu_that_a_container_was_given_and_lost_fails_there_too():
    findings = inventory_of(p100(0), gaps=refused(15, "gpu index 1"), container="docker")

    assert [finding.verdict for finding in findings] == [Verdict.FAIL]


def test_gpus_that_are_assigned_to_virtual_machines_are_not_lost():
    passed = (CARDS[0], msgspec.structs.replace(CARDS[1], driver="vfio-pci"))
    seen, elsewhere = inventory_of(p100(0), pci=passed)

    assert (seen.verdict, elsewhere.verdict) == (Verdict.PASS, Verdict.SKIP)


def test_a_gpu_without_a_sign_of_life_fails():
    (finding,) = inventory_of(p100(0))

    assert (finding.verdict, finding.cause, finding.confidence) == (Verdict.FAIL, "gpu-lost", "likely")
    assert finding.subject == "gpu:0000:04:00.0"


def test_gpus_without_sysfs_are_not_called_healthy():
    """A container without /sys: NVML alone does not show whether one is missing."""
    (finding,) = inventory_of(p100(0), p100(1), pci=())

    assert finding.verdict is Verdict.UNKNOWN
