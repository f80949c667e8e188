"""Driver: is the NVIDIA kernel module loaded, does NVML load, and are they the same version?

Sources: nvmlInit and nvmlSystemGetDriverVersion; /sys/module/nvidia/version; /proc/driver/nvidia/version; the module
installed for the running kernel; /dev. NVML return codes: NVIDIA nvml.h (API 13).
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._session import control_denied
from gpucheck.checks.software.module_flavour import needed_flavour
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    CRASHED,
    DEFECT,
    LATE,
    NOT_STARTED,
    Check,
    DriverState,
    Finding,
    Host,
    NvmlFailure,
    NvmlReading,
    Verdict,
)

NAME = "driver"
HOST = Subject(check=NAME)

# NVML return codes of nvmlInit
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH, OF_ANY_KIND = 9, 12, 18, 999
FORBIDDEN = (4, 17)
HIDDEN_BY_A_CGROUP = (*FORBIDDEN, DRIVER_NOT_LOADED, OF_ANY_KIND)
# What a return code means in each state of the host.
MEANINGS = {
    4: (Verdict.UNKNOWN, "software.device-files-denied"),
    17: (Verdict.UNKNOWN, "software.device-files-denied"),
    8: (Verdict.FAIL, "software.power-cable-detached"),
    10: (Verdict.FAIL, "software.interrupts-not-assigned"),
    15: (Verdict.FAIL, "software.nvml-gpu-lost"),
    16: (Verdict.FAIL, "software.nvml-gpu-lost"),
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


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver check reads. device_nodes: names in /dev of NVIDIA, None where it cannot be listed.

    denied: a device cgroup denies /dev/nvidiactl.
    """

    nvml: NvmlReading | NvmlFailure
    driver: DriverState
    gpus_on_pci: int
    needed_flavours: frozenset[str] = frozenset()
    device_nodes: tuple[str, ...] | None = None
    container: str | None = None
    denied: bool = False


def probe(host: Host) -> Values:
    gpus = [device for device in host.pci() if device.is_nvidia_gpu]
    nvml, names = host.nvml(), host.list_names("/dev")
    return Values(
        nvml=nvml,
        driver=host.driver(),
        gpus_on_pci=len(gpus),
        needed_flavours=frozenset(map(needed_flavour, gpus)) - {"either"},
        device_nodes=None if names is None else tuple(name for name in names if name.startswith("nvidia")),
        container=host.system().container,
        denied=control_denied(host.device_files()),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """Evaluate the driver, then what is installed for the next boot."""
    if isinstance(values.nvml, NvmlFailure):
        yield _unusable(values.nvml, values)
        return
    loaded = values.driver.loaded_version
    library = values.nvml.driver_version
    subject = HOST.with_evidence(
        f"nvmlSystemGetDriverVersion: {library or 'not reported'}",
        f"/sys/module/nvidia/version: {loaded or 'not readable'}",
    )
    if library is None:
        yield _without_version(subject, values.nvml)
        return
    if loaded is not None and loaded != library:
        seen = f"kernel module {loaded}, NVML {library}"
        yield subject.fails("software.driver-versions-differ", seen, "one version")
        return
    yield subject.passes(library)
    yield from _next_boot(values.driver, loaded)


def _without_version(subject: Subject, nvml: NvmlReading) -> Finding:
    gap = next((gap for gap in nvml.gaps if gap.call == "nvmlSystemGetDriverVersion"), None)
    seen = "driver version unknown"
    if gap is None:
        return subject.unknown("software.driver-version-not-reported", seen)
    if gap.code == DEFECT:
        return subject.unknown("software.driver-version-defect", seen, error=gap.name)
    return subject.unknown("software.driver-version-error", seen, error=gap.name, returned=gap.code)


def _next_boot(driver: DriverState, loaded: str | None) -> Iterator[Finding]:
    installed = driver.installed_version
    if installed is None or loaded is None or installed == loaded:
        return
    lines = (f"module file of the running kernel: {installed}", f"/sys/module/nvidia/version: {loaded}")
    seen = f"driver {loaded} loaded, {installed} installed"
    yield HOST.with_evidence(*lines).warns("software.driver-pending-reboot", seen, "the same version")


def _unusable(failure: NvmlFailure, values: Values) -> Finding:
    driver = values.driver
    installed = " ".join(filter(None, (driver.installed_version, driver.installed_flavour)))
    subject = HOST.with_evidence(
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/sys/module/nvidia/version: {driver.loaded_version or 'not present'}",
        f"installed module: {installed or 'not found'}",
        f"nouveau: {'loaded' if driver.nouveau_loaded else 'not loaded'}",
        f"NVIDIA GPUs on the PCI bus: {values.gpus_on_pci}",
        f"/dev: {_nodes(values.device_nodes)}",
    )
    nothing = values.gpus_on_pci == 0 and driver.loaded_version is None
    if nothing and failure.code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        return subject.unknown("software.no-gpu-no-driver", "no NVIDIA GPU and no NVIDIA driver")
    return meaning(failure, values, subject)


def _nodes(names: tuple[str, ...] | None) -> str:
    return "cannot be listed" if names is None else " ".join(names) or "no nvidia file"


def meaning(failure: NvmlFailure, values: Values, subject: Subject = HOST) -> Finding:
    """Return what a failure of NVML shows about the driver."""
    verdict, code = _meaning(failure, values)
    seen = f"NVML not available: {failure.call} {'returned' if failure.code > 0 else 'ended with'} {failure.name}"
    return subject.finding(
        verdict,
        IN_CONTAINER.get(code, code) if values.container else code,
        seen,
        call=failure.call,
        returned=failure.code,
        flavour=values.driver.installed_flavour,
    )


def _meaning(failure: NvmlFailure, values: Values) -> tuple[Verdict, str]:
    if values.denied and failure.code in HIDDEN_BY_A_CGROUP:
        # runc#3708: a reload of systemd resets the device rules of a running container.
        return Verdict.UNKNOWN, "software.control-device-denied"
    if failure.code == LIBRARY_NOT_FOUND:
        loaded = values.driver.loaded_version is not None
        return Verdict.FAIL, "software.library-missing" if loaded else "software.library-and-module-missing"
    if failure.code == DRIVER_NOT_LOADED:
        return Verdict.FAIL, _not_loaded(values)
    if failure.code in MEANINGS:
        return MEANINGS[failure.code]
    undefined = failure.code < 0
    return Verdict.UNKNOWN, "software.nvml-failure-undefined" if undefined else "software.nvml-failure-unexplained"


def _not_loaded(values: Values) -> str:
    """NVML's 9 is "NVML cannot reach the driver"; the kernel shows whether it is loaded."""
    driver = values.driver
    if driver.loaded_version is not None:
        missing = values.device_nodes is not None and "nvidiactl" not in values.device_nodes
        return "software.control-device-missing" if missing else "software.driver-unreachable"
    if driver.nouveau_loaded:
        return "software.nouveau-bound"
    wrong = driver.installed_flavour is not None and values.needed_flavours - {driver.installed_flavour}
    return "software.installed-flavour-wrong" if wrong else "software.module-not-loaded"


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
