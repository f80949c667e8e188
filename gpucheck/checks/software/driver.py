"""Driver: is the NVIDIA kernel module loaded, does NVML load, and are they the same version?

Sources: nvmlInit and nvmlSystemGetDriverVersion; /sys/module/nvidia/version; /proc/driver/nvidia/version; the module
installed for the running kernel; /dev. NVML return codes: NVIDIA nvml.h (API 13).
"""

from collections.abc import Collection, Iterator
from typing import Any

from gpucheck.checks._nvml import FORBIDDEN, LOST, all_passed_through, on_the_bus, quick_check
from gpucheck.checks._session import control_denied
from gpucheck.checks.software.modules import needed_flavour
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    CRASHED,
    DEFECT,
    LATE,
    NOT_STARTED,
    DriverState,
    Finding,
    NvmlFailure,
    NvmlReading,
    Verdict,
)
from gpucheck.model.facts import Facts

NAME = "driver"
HOST = Subject(check=NAME)

# NVML return codes of nvmlInit
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH, OF_ANY_KIND = 9, 12, 18, 999
HIDDEN_BY_A_CGROUP = (*FORBIDDEN, DRIVER_NOT_LOADED, OF_ANY_KIND)
# What a return code means in each state of the host.
MEANINGS = {
    **dict.fromkeys(FORBIDDEN, (Verdict.UNKNOWN, "software.device-files-denied")),
    8: (Verdict.FAIL, "software.power-cable-detached"),
    10: (Verdict.FAIL, "software.interrupts-not-assigned"),
    **dict.fromkeys(LOST, (Verdict.FAIL, "software.nvml-gpu-lost")),
    VERSION_MISMATCH: (Verdict.FAIL, "software.driver-versions-differ"),
    # Without a code of NVML, only a call that crashed or did not return is about the driver.
    LATE: (Verdict.FAIL, "software.nvml-unresponsive"),
    CRASHED: (Verdict.FAIL, "software.nvml-crashed"),
    NOT_STARTED: (Verdict.UNKNOWN, "software.nvml-query-not-started"),
    DEFECT: (Verdict.UNKNOWN, "software.nvml-query-defect"),
}
# Codes whose remedy is another one in a container.
IN_CONTAINER = {
    "software.control-device-denied": "software.control-device-denied-in-container",
    "software.control-device-missing": "software.control-device-missing-in-container",
    "software.driver-unreachable": "software.driver-unreachable-in-container",
    "software.driver-versions-differ": "software.driver-versions-differ-in-container",
    "software.library-and-module-missing": "software.library-and-module-missing-in-container",
    "software.library-missing": "software.library-missing-in-container",
}


def evaluate(facts: Facts) -> Iterator[Finding]:
    """Evaluate the driver, then what is installed for the next boot."""
    if isinstance(facts.nvml, NvmlFailure):
        yield _unusable(facts.nvml, facts)
        return
    loaded = facts.driver.loaded_version
    library = facts.nvml.driver_version
    subject = HOST.with_evidence(
        f"nvmlSystemGetDriverVersion: {library or 'not reported'}",
        f"/sys/module/nvidia/version: {loaded or 'not readable'}",
    )
    if library is None:
        yield _without_version(subject, facts.nvml)
        return
    if loaded is not None and loaded != library:
        seen = f"kernel module {loaded}, NVML {library}"
        yield subject.fails("software.driver-versions-differ", seen, "one version")
        return
    yield subject.passes(library)
    installed = facts.driver.installed_version
    if installed is not None and loaded is not None and installed != loaded:
        lines = (f"module file of the running kernel: {installed}", f"/sys/module/nvidia/version: {loaded}")
        seen = f"driver {loaded} loaded, {installed} installed"
        yield HOST.with_evidence(*lines).warns("software.driver-pending-reboot", seen, "the same version")


def _without_version(subject: Subject, nvml: NvmlReading) -> Finding:
    gap = next((gap for gap in nvml.gaps if gap.call == "nvmlSystemGetDriverVersion"), None)
    seen = "driver version unknown"
    if gap is None:
        return subject.unknown("software.driver-version-not-reported", seen)
    if gap.code == DEFECT:
        return subject.unknown("software.driver-version-defect", seen, error=gap.name)
    return subject.unknown("software.driver-version-error", seen, error=gap.name, returned=gap.code)


def _unusable(failure: NvmlFailure, facts: Facts) -> Finding:
    driver, every = facts.driver, on_the_bus(facts)
    gpus = [device for device in every if not device.is_passed_through]
    names = facts.folders["/dev"]
    nodes = None if names is None else [name for name in names if name.startswith("nvidia")]
    installed = " ".join(filter(None, (driver.installed_version, driver.installed_flavour)))
    subject = HOST.with_evidence(
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/sys/module/nvidia/version: {driver.loaded_version or 'not present'}",
        f"installed module: {installed or 'not found'}",
        f"nouveau: {'loaded' if driver.nouveau_loaded else 'not loaded'}",
        f"NVIDIA GPUs on the PCI bus: {len(every)}",
        f"/dev: {'cannot be listed' if nodes is None else ' '.join(nodes) or 'no nvidia file'}",
    )
    nothing = not gpus and driver.loaded_version is None
    if nothing and failure.code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        if every:
            return all_passed_through(subject, every)
        return subject.unknown("software.no-gpu-no-driver", "no NVIDIA GPU and no NVIDIA driver")
    denied, flavours = control_denied(facts.device_files), {needed_flavour(gpu) for gpu in gpus} - {"either"}
    container = facts.system.container
    return meaning(failure, driver, container, subject, denied=denied, nodes=nodes, flavours=flavours)


def meaning(
    failure: NvmlFailure,
    driver: DriverState,
    container: str | None,
    subject: Subject = HOST,
    *,
    denied: bool = False,
    nodes: Collection[str] | None = None,
    flavours: Collection[str] = (),
) -> Finding:
    """Return what a failure of NVML shows about the driver.

    denied: a device cgroup denies /dev/nvidiactl. nodes: names in /dev of NVIDIA, None where it cannot be listed.
    flavours: of the modules that the GPUs need.
    """
    if denied and failure.code in HIDDEN_BY_A_CGROUP:
        # runc#3708: a reload of systemd resets the device rules of a running container.
        verdict, code = Verdict.UNKNOWN, "software.control-device-denied"
    elif failure.code == DRIVER_NOT_LOADED:
        verdict, code = Verdict.FAIL, _not_loaded(driver, nodes, flavours)
    elif failure.code == LIBRARY_NOT_FOUND:
        both = driver.loaded_version is None
        verdict, code = Verdict.FAIL, "software.library-and-module-missing" if both else "software.library-missing"
    else:
        unknown = "software.nvml-failure-undefined" if failure.code < 0 else "software.nvml-failure-unexplained"
        verdict, code = MEANINGS.get(failure.code, (Verdict.UNKNOWN, unknown))
    seen = f"NVML not available: {failure.call} {'returned' if failure.code > 0 else 'ended with'} {failure.name}"
    values: dict[str, Any] = {"call": failure.call, "returned": failure.code, "flavour": driver.installed_flavour}
    return subject.finding(verdict, IN_CONTAINER.get(code, code) if container else code, seen, **values)


def _not_loaded(driver: DriverState, nodes: Collection[str] | None, flavours: Collection[str]) -> str:
    """NVML's 9 is "NVML cannot reach the driver"; the kernel shows whether it is loaded."""
    if driver.loaded_version is not None:
        missing = nodes is not None and "nvidiactl" not in nodes
        return "software.control-device-missing" if missing else "software.driver-unreachable"
    if driver.nouveau_loaded:
        return "software.nouveau-bound"
    wrong = driver.installed_flavour is not None and {*flavours} - {driver.installed_flavour}
    return "software.installed-flavour-wrong" if wrong else "software.module-not-loaded"


NEEDS = ("nvml", "pci", "driver", "folder:/dev", "system", "device_files")
CHECK = quick_check(NAME, "software", evaluate, NEEDS)
